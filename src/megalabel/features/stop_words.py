"""Words of a language that say little by themselves: articles, pronouns, prepositions,
conjunctions, auxiliary verbs and particles. They were written down for megalabel."""

from __future__ import annotations

STOP_WORDS = {
    "danish": """
        af alle alt anden at blev blive bliver da de dem den denne der deres det dette dig din dine
        disse dog du efter eller en end er et for fra ham han hans har havde have hende hendes her
        hos hun hvad hvem hver hvilken hvis hvor hvordan hvorfor i ikke ind jeg jer jeres jo kan
        kunne man mange med meget men mig min mine mit mod måtte nej nogen noget nogle nu når og
        også om op os over på sig sin sine sit skal skulle som sådan thi til ud under var vi vil
        ville vor være været
        """,
    "dutch": """
        aan al alles als altijd ander andere ben bij daar dan dat de der deze die dit doch doen
        door dus een eens en er ge geen had heb hebben heeft hem hen het hier hij hoe hoewel hun
        iemand iets ik in is ja je jij jou jouw jullie kan kon kunnen maar me meer men met mij mijn
        moet na naar niet niets nog nu of om omdat onder ons onze ook op over reeds te tegen toch
        toen tot u uit uw van veel voor want waren was wat we wel werd wezen wie wij wil worden
        wordt zal ze zelf zich zij zijn zo zonder zou
        """,
    "english": """
        a about above after again against all also am among an and any are aren as at be because
        been before being below between both but by can cannot could couldn d did didn do does
        doesn doing don down during each either etc every few for from further had hadn has hasn
        have haven having he her here hers herself him himself his how however i if in into is isn
        it its itself just ll m may me might more most must mustn my myself neither no nor not now
        of off on once only or other ought our ours ourselves out over own per re s same shall shan
        she should shouldn so some such t than that the their theirs them themselves then there
        these they this those though through to too under until up upon us ve very via was wasn we
        were weren what when where whether which while who whom whose why will with within without
        won would wouldn you your yours yourself yourselves
        """,
    "finnish": """
        ei eikä eivät eli ellei emme en enemmän ennen et ette että he heidän heidät heihin heille
        heissä heistä heitä hän häneen hänelle hänen hänessä hänestä hänet häntä ilman itse ja jo
        johon joiden joissa joista joita joka jokin jonka jos jossa josta jota jotka jotta kaikki
        kanssa kautta keiden ken kenen kenet ketkä ketä koska kuin kuinka kuka kun kunnes lisäksi
        luona läpi me meidän meidät meille meissä meistä meitä mihin mikä mikään minkä minua
        minulle minun minussa minusta minut minä missä mistä mitkä mitä mukaan mutta muu muut myös
        ne niiden niihin niille niin niissä niistä niitä no noin nuo nyt näiden näissä näistä näitä
        nämä ole olemme olen olet olette oli olimme olin olisi olit olivat olla olleet ollut on
        ovat paitsi pitkin poikki saakka se sekä sen siellä siihen siinä siis siitä sille sinua
        sinun sinut sinä sitä taas tai te teidän teidät teitä tuo tuohon tuolla tuon tuossa tähän
        tällä tämä tämän tässä tästä tätä vaan vai vaikka vain vielä voi välillä yhdessä
        """,
    "french": """
        a afin ai ainsi alors apres après au aucun aucune aussi autre autres aux avait avant avec
        avoir c car ce cela celle celles celui ces cet cette ceux chaque chez ci comme comment d
        dans de depuis des donc dont du elle elles en encore entre es est et etc eu eux fait fut il
        ils j je jusque l la le les leur leurs lors lorsque lui m ma mais me mes mon même mêmes n
        ne ni nos notre nous on ont ou où par parce pas pendant peu peut plus plusieurs pour
        pourquoi qu quand que quel quelle quelles quels qui quoi s sa sans se selon ses si soit son
        sont sous sur t ta te tes toi ton tous tout toute toutes très tu un une vers voici voilà
        vos votre vous y à étaient était étant été être
        """,
    "german": """
        aber alle allem allen aller alles als also am an ander andere anderem anderen anderer
        anderes auch auf aus bei beim bin bis bist da dabei dadurch dafür dagegen daher damit
        danach dann daran darauf daraus darin darum darunter darüber das dass davon dazu daß dein
        deine deinem deinen deiner dem den denn der deren des dessen dich die dies diese diesem
        diesen dieser dieses dir doch dort du durch ein eine einem einen einer eines einige er es
        etwa etwas euch euer eure für gegen gewesen hab habe haben hat hatte hatten hier hin hinter
        ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in indem ins ist ja jede jedem jeden jeder
        jedes jedoch jene jenem jenen jener jenes jetzt kann kein keine keinem keinen keiner können
        könnte man manche mehr mein meine meinem meinen meiner mich mir mit muss musste nach nicht
        nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner seit selbst sich sie
        sind so solche solchem solchen solcher soll sollte sondern sonst sowie um und uns unser
        unsere unter viel vom von vor war waren warum was weil weiter welche welchem welchen
        welcher welches wenn wer werde werden wie wieder will wir wird wo wollen wollte worden
        wurde wurden während würde zu zum zur zwar zwischen über
        """,
    "italian": """
        a abbia ad agli ai al alla alle allo altre altri anche ancora avendo avere aveva c che chi
        ci ciò coi col come con contro cui d da dagli dai dal dalla dalle dallo degli dei del dell
        della delle dello dentro di dopo dove e ed era erano essendo essere fra fu già gli ha hanno
        ho i il in io l la le lei li lo loro lui ma me mentre mi mia mie miei mio ne negli nei nel
        nell nella nelle nello noi non nostra nostre nostri nostro o ogni oppure per perché però
        più poi presso prima pur qual quale quali quando quanto quei quella quelle quelli quello
        questa queste questi questo qui quindi sarà se sempre senza si sia siamo siano solo sono
        sopra sotto sta stata state stati stato su sua sue sugli sui sul sull sulla sulle sullo suo
        suoi tra tu tua tue tuo tuoi tutta tutte tutti tutto un una uno vi voi vostro è
        """,
    "norwegian": """
        alle alt andre at av bare ble bli blir blitt både da de dem den denne der dere deres det
        dette di din disse ditt du eller en enn er et etter for fordi fra før ha hadde han hans har
        hennes her hos hun hva hvem hver hvilken hvis hvor hvordan hvorfor i ikke ingen inn jeg kan
        kunne man mange med meg meget mellom men mer mest min mitt mot må nei noe noen nå når og
        også om opp oss over på seg selv sin sine sitt skal skulle slik som så til ut uten var ved
        vi vil ville vår være vært
        """,
    "portuguese": """
        a ainda algum alguma ao aos apenas após aquela aquelas aquele aqueles as assim até cada com
        como contra contudo da das de dela delas dele deles depois desde dessa desse desta deste do
        dos durante e ela elas ele eles em entre era eram essa essas esse esses esta estas este
        estes está estão eu foi for foram há isso isto já lhe lhes mais mas me mediante mesmo meu
        meus minha muito na nas nem nessa nesse nesta neste no nos nossa nosso num numa nunca não
        nós o onde os ou outra outras outro outros para pela pelas pelo pelos per perante pois por
        porque porém quais qual quando quanto que quem se seja sem sempre sendo ser será seu seus
        sob sobre sua suas são só também te tem ter teu todo todos tu tua tudo têm um uma umas uns
        vos à às é
        """,
    "russian": """
        а без более бы был была были было быть в вам вас весь во вот все всего всех всё вы где да
        даже для до его ее если есть еще ещё её же за здесь и из или им их к как какой ко когда кто
        ли либо между меня мне много может мой моя мы на над надо нам нас не него нее нет ни них но
        ну о об однако он она они оно от перед по под после потом потому почти при про раз с сам
        свой своя себе себя со так также такой там те тебе тебя тем то тогда того тоже той только
        том ты у уже чего чей чем через что чтобы чье эта эти это этого этой этом этот я
        """,
    "spanish": """
        a al algo alguna algunas alguno algunos ante antes aquel aquella aquellas aquellos aunque
        aún bajo bien cada como con contra cual cuales cuando cuya cuyo cómo de del desde donde dos
        durante e el ella ellas ellos en entre era eran es esa esas ese eso esos esta estaba estado
        estas este esto estos está están fue fueron ha haber había han hasta hay la las le les lo
        los mas me mediante mi mientras mis mucho muy más mí nada ni no nos nosotros nuestra
        nuestras nuestro nuestros o os otra otras otro otros para pero poco por porque pues que
        quien quienes quién qué se sea según ser si sido sin sino sobre son su sus suyo sí también
        tan tanto te tiene tienen todo todos tras tu tus tú u un una unas uno unos usted vosotros y
        ya yo él
        """,
    "swedish": """
        alla allt att av blev bli blir blivit de dem den denna deras dess dessa det detta dig din
        dina ditt du där då efter eller en er era ett från för ha hade han hans har henne hennes
        hon honom hur här i icke in ingen inom inte jag ju kan kunde man med mellan men mer mig min
        mina mitt mot mycket måste ni nu när någon något några och också om oss på samma sedan sig
        sin sina sitt själv ska skall skulle som så sådan till under upp ut utan vad var vara
        varför varit varje vars vart vem vi vid vilka vilken vilket vår våra vårt än är åt över
        """,
}
