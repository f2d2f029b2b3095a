"""The words of the synthetic shop: what it sells, of what, for what and by whom.

Label names are put together from these tables, so the nouns, the categories and the facets must
stay distinct from each other (the tests check it).
"""

from __future__ import annotations

from typing import TypeAlias


def _listed(names: str, separator: str = " ") -> list[str]:
    return names.split(separator)


# Material families; a category names the two that suit it by their letters.
MATERIALS: dict[str, tuple[str, tuple[str, ...]]] = {
    "w": ("Wood", ("oak", "pine", "walnut", "bamboo", "beech", "birch")),
    "m": ("Metal", ("stainless steel", "brass", "aluminium", "copper", "cast iron", "pewter")),
    "t": ("Textiles", ("cotton", "linen", "wool", "hemp", "velvet", "canvas")),
    "l": ("Leather and felt", ("leather", "suede", "felt", "cork", "sheepskin", "nubuck")),
    "c": ("Ceramics and glass", ("stoneware", "glass", "porcelain", "enamel", "crystal", "china")),
    "s": ("Plastics and rubber", ("acrylic", "silicone", "nylon", "rubber", "neoprene", "vinyl")),
    "f": ("Natural fibres", ("jute", "rattan", "wicker", "seagrass", "raffia", "pressed card")),
    "n": ("Stone", ("slate", "marble", "granite", "sandstone", "soapstone", "terrazzo")),
}  # fmt: skip

# Themes of purposes; each purpose reads well after "designed for".
PURPOSES: dict[str, tuple[str, ...]] = {
    "Cooking at home": (
        "home baking", "weekday dinners", "slow cooking", "batch cooking", "jam making",
        "Sunday roasts",
    ),
    "Hosting": (
        "dinner parties", "garden parties", "birthday teas", "buffets", "wedding tables",
        "housewarmings",
    ),
    "Outdoor life": (
        "camping", "hiking", "picnics", "beach days", "fishing trips", "summer festivals",
    ),
    "Gardening": (
        "growing vegetables", "potting", "pruning", "watering", "balcony gardens", "composting",
    ),
    "Keeping fit": (
        "running", "yoga", "cycling", "weight training", "swimming", "stretching",
    ),
    "Working life": (
        "home offices", "desk work", "meetings", "note taking", "remote working", "presentations",
    ),
    "Learning": (
        "school days", "exam revision", "lectures", "art classes", "language lessons",
        "library visits",
    ),
    "Journeys": (
        "city breaks", "commuting", "road trips", "long flights", "business trips", "cruises",
    ),
    "Giving": (
        "birthday presents", "Christmas presents", "wedding gifts", "leaving presents",
        "thank-you gifts", "new parents",
    ),
    "Family life": (
        "family evenings", "toddlers", "bath time", "bedtime stories", "play dates", "newborns",
    ),
    "Making and mending": (
        "decorating", "woodworking", "upcycling", "sewing", "car repairs", "plumbing jobs",
    ),
    "Rest and wellbeing": (
        "better sleep", "reading in bed", "lazy weekends", "warm baths", "meditation",
        "spa evenings",
    ),
    "Life with animals": (
        "dog walking", "indoor cats", "puppy training", "pet grooming", "small pets", "aquariums",
    ),
    "Arts and music": (
        "drawing", "painting", "knitting", "band practice", "photography", "scrapbooking",
    ),
    "Dressing well": (
        "office wear", "evenings out", "winter layers", "summer holidays", "wedding guests",
        "interviews",
    ),
    "Tidy homes": (
        "small flats", "student rooms", "narrow hallways", "spring cleaning", "utility rooms",
        "attics",
    ),
}  # fmt: skip

Department: TypeAlias = tuple[list[str], dict[str, tuple[str, list[str]]]]


def _departments(table: str) -> dict[str, Department]:
    departments: dict[str, Department] = {}
    for line in table.strip().splitlines():
        name, _, listed = line.partition(": ")
        if not line.startswith(" "):
            categories: dict[str, tuple[str, list[str]]] = {}
            departments[name] = listed.split(", "), categories
        else:
            category, _, letters = name.strip(" )").partition(" (")
            categories[category] = letters, listed.split(", ")
    return departments


# Departments with the themes that suit them; below each its categories with the letters of two
# material families, and six kinds of product.
DEPARTMENTS = _departments("""
Kitchen and dining: Cooking at home, Hosting, Giving, Tidy homes
  Cookware (mc): saucepan, frying pan, casserole dish, stockpot, griddle, roasting tin
  Tableware (cn): dinner plate, soup bowl, serving platter, egg cup, salad bowl, gravy boat
  Drinkware (cm): coffee mug, wine cup, water jug, teapot, tumbler, decanter
  Kitchen tools (ws): spatula, whisk, ladle, rolling pin, garlic press, peeler
  Food storage (cs): bread bin, spice rack, lunch box, biscuit jar, butter dish, storage canister
Garden and patio: Gardening, Outdoor life, Hosting, Making and mending
  Garden furniture (wm): garden chair, garden bench, sun lounger, patio table, garden swing, parasol
  Planters (fn): plant pot, hanging basket, raised bed, seed tray, window box, trellis
  Garden tools (wm): spade, garden fork, pruning saw, rake, hoe, trowel
  Barbecue (mn): charcoal grill, fire pit, pizza oven, smoker, grill brush, kebab rack
  Garden wildlife (wn): bird feeder, nest box, bird bath, bee house, hedgehog house, butterfly box
Clothing: Dressing well, Journeys, Giving, Working life
  Tops (ts): shirt, blouse, polo shirt, tunic, vest top, sweatshirt
  Knitwear (tl): jumper, cardigan, roll neck, poncho, waistcoat, shawl
  Outerwear (ts): raincoat, parka, overcoat, gilet, bomber jacket, trench coat
  Dresses and skirts (ts): summer dress, evening dress, pleated skirt, pencil skirt, apron, kaftan
  Nightwear (ts): dressing gown, nightshirt, pyjama set, bed jacket, sleep mask, kimono
Shoes and bags: Dressing well, Journeys, Outdoor life, Working life
  Boots (ls): ankle boot, hiking boot, wellington boot, chelsea boot, snow boot, desert boot
  Shoes (lt): trainer, loafer, court shoe, brogue, deck shoe, ballet pump
  Slippers and sandals (lf): slipper, sandal, flip-flop, clog, espadrille, mule
  Bags (lt): handbag, tote bag, shoulder bag, clutch bag, satchel, bucket bag
  Small accessories (lt): wallet, card holder, belt, coin purse, key case, glasses case
Furniture: Tidy homes, Rest and wellbeing, Working life, Family life
  Seating (wl): armchair, sofa, rocking chair, footstool, bar stool, dining chair
  Tables (wn): coffee table, side table, dining table, hall table, nesting table, writing desk
  Shelving (wm): bookcase, wall shelf, ladder shelf, display cabinet, shoe rack, magazine rack
  Bedroom furniture (wf): bed frame, wardrobe, chest of drawers, night table, vanity table, ottoman
  Hall furniture (wm): wall mirror, tall mirror, room divider, coat stand, stick stand, hall bench
Lighting: Rest and wellbeing, Hosting, Working life, Tidy homes
  Lamps (mc): table lamp, floor lamp, reading lamp, bedside lamp, desk lamp, clip lamp
  Ceiling lights (mc): pendant light, chandelier, spotlight, flush light, lantern light, track light
  Outdoor lights (ms): path light, porch light, string light, gate light, solar lantern, pond light
  Lampshades (tf): drum shade, cone shade, bell shade, pleated shade, empire shade, globe shade
  Candlelight (cm): candle holder, tea light cup, candelabra, storm lamp, wall sconce, snuffer
Toys and games: Family life, Giving, Learning, Arts and music
  Soft toys (tl): teddy bear, rag doll, toy rabbit, toy elephant, hand puppet, comfort blanket
  Building toys (ws): block set, marble run, train set, toy castle, toy garage, shape sorter
  Board games (wf): chess set, draughts set, solitaire set, jigsaw puzzle, domino set, memory game
  Pretend play (wt): play kitchen, toy till, dolls' house, doctor's case, puppet theatre, toy forge
  Outdoor toys (ws): kite, swing seat, sandpit, skipping rope, scooter, croquet set
Sports: Keeping fit, Outdoor life, Journeys, Rest and wellbeing
  Gym equipment (ms): dumbbell, kettlebell, exercise bike, stretch band, weight bench, chin-up bar
  Yoga and balance (fs): yoga mat, yoga block, yoga strap, foam roller, balance board, massage ball
  Cycle accessories (ms): bike bell, bike light, bike basket, cycle helmet, bike pump, saddle bag
  Racket sports (ws): tennis racket, badminton set, ping-pong bat, squash racket, net, ball tube
  Water sports (st): swim float, snorkel set, wetsuit, paddle board, dry bag, swim cap
Tools and workshop: Making and mending, Working life, Tidy homes, Giving
  Hand tools (mw): claw hammer, screwdriver set, spanner, hand saw, wood chisel, mallet
  Measuring (mw): tape measure, spirit level, folding rule, set square, calliper, plumb line
  Decorating tools (ws): paint brush, paint roller, paste table, scraper, mixing tub, step ladder
  Tool storage (ms): tool box, tool belt, workbench, pegboard, parts organiser, saw horse
  Cleaning (ws): broom, mop, dustpan, scrubbing brush, bucket, feather duster
Office and stationery: Working life, Learning, Giving, Arts and music
  Notebooks (lf): notebook, diary, sketchbook, address book, guest book, recipe journal
  Writing (mw): fountain pen, ballpoint pen, drafting pencil, pen case, calligraphy set, pencil pot
  Desk accessories (wm): desk tidy, letter tray, bookend, paperweight, monitor stand, desk mat
  Filing (fs): ring binder, document wallet, filing box, clipboard, box file, index card tin
  Wall planning (wf): wall calendar, notice board, whiteboard, wall clock, chalkboard, year planner
Pet supplies: Life with animals, Giving, Tidy homes, Outdoor life
  Dogs (lt): dog lead, dog collar, dog bed, dog coat, dog bowl, chew toy
  Cats (ft): cat bed, scratching post, cat tunnel, cat carrier, cat tower, cat toy
  Small animals (wm): rabbit hutch, hamster wheel, bird cage, guinea pig house, hay rack, rabbit run
  Fish (cs): fish tank, tank ornament, fish net, tank filter, aquarium stand, fish feeder
  Grooming (ws): grooming brush, nail clipper, flea comb, pet bath, shedding glove, coat rake
Baby and nursery: Family life, Giving, Journeys, Rest and wellbeing
  Nursery furniture (wf): cot, changing table, nursing chair, moses basket, toy box, baby gate
  Feeding (sc): highchair, baby bottle, bib, weaning bowl, sippy cup, bottle warmer
  Out and about (ts): pushchair, baby carrier, changing bag, car seat, travel cot, sun shade
  Baby clothes (tl): sleepsuit, baby hat, baby mitten, romper, baby bootee, snowsuit
  Baby bath (ts): baby tub, hooded towel, bath thermometer, bath seat, wash mitt, bath book
Travel and luggage: Journeys, Outdoor life, Working life, Giving
  Luggage (sl): suitcase, cabin case, holdall, garment bag, trunk, wheeled duffel
  Backpacks (st): daypack, rucksack, laptop backpack, hip pack, drawstring bag, roll-top bag
  Travel comfort (ts): neck pillow, eye mask, travel blanket, ear plug tin, foot sling, travel sock
  Travel organisers (ls): passport holder, case tag, packing cube, wash bag, cable pouch, money belt
  Camping gear (sm): tent, sleeping mat, camp stove, camping lantern, cool box, camp chair
Bath and beauty: Rest and wellbeing, Family life, Giving, Journeys
  Bath linen (tf): bath towel, hand towel, bath mat, face cloth, bathrobe, hair wrap
  Bathroom storage (wm): washing bin, towel rail, bath cabinet, shower caddy, soap dish, brush cup
  Hair care (ws): hairbrush, comb, hair dryer, hair clip, hairband, shower cap
  Shaving (wm): safety razor, shaving brush, shaving bowl, beard comb, razor stand, shaving mirror
  Make-up (sl): make-up brush, make-up bag, vanity case, pocket mirror, powder puff, perfume bottle
Music and crafts: Arts and music, Giving, Learning, Making and mending
  Instruments (wm): ukulele, tin whistle, hand drum, harmonica, xylophone, tambourine
  Music accessories (wl): music stand, guitar strap, guitar case, metronome, drum stool, disc crate
  Needlework (wt): sewing box, pin cushion, knitting bag, embroidery hoop, thread stand, yarn bowl
  Painting and drawing (wt): easel, palette, pastel case, brush roll, paint box, drawing board
  Paper crafts (fs): scrapbook, photo album, stamp set, paper trimmer, origami set, card kit
Home textiles: Rest and wellbeing, Tidy homes, Hosting, Giving
  Bedding (ts): duvet cover, fitted sheet, pillowcase, blanket, bedspread, quilt
  Cushions (tl): sofa cushion, floor cushion, seat pad, bolster, bean bag, pouffe
  Curtains and blinds (tf): curtain, roller blind, roman blind, net curtain, tie-back, door curtain
  Rugs (tf): hall runner, hearth rug, doormat, bedside rug, play mat, stair runner
  Table linen (tf): tablecloth, napkin set, table runner, placemat, tea towel, oven glove
""")

MODIFIERS = _listed(
    "classic compact lightweight heavy-duty handmade vintage modern rustic deluxe everyday premium "
    "Nordic retro slim oversized striped patterned personalised minimalist limited-edition "
    "hard-wearing easy-care mini two-tone"
)

# Brands and series are a beginning and an ending each: 48 x 40 and 64 x 48 names.
BRAND_BEGINNINGS = _listed(
    "Alder Ash Barn Beck Birch Black Bram Bright Brook Burn Cald Chart Clay Cran Dal Dun East Elm "
    "Fair Fern Glen Gold Green Harrow Hart Hazel Heath Holl King Lang Lark Lind Marl Moor North "
    "Oak Pen Ravens Red Rose Sand Sil Stan Thorn Wel West Whit Wood"
)
BRAND_ENDINGS = _listed(
    "bourne bridge bury by church cliffe combe cote cott croft dale den don field fold ford gate "
    "grave ham haven head hill holm hurst ingham land leigh low mere minster mont more ridge "
    "stead stoke stow thorpe ton well wick"
)
SERIES_BEGINNINGS = _listed(
    "Ad Al Am An Ar As Av Bal Bel Bor Bra Cal Cam Car Cel Cor Dal Del Dor El Em Er Es Fal Fen "
    "Fi Gal Gi Hal Hel Il In Is Jo Ka Kal Kel Ki La Lan Lo Ma Mar Mel Mi Mon Na Nel No Ol Or Os "
    "Pal Per Ra Ren Ri Ro Sa Sel Sol Ta Tor Va"
)
SERIES_ENDINGS = _listed(
    "bara beto bria dano dara dessa dina dora dova gano gara glio lano lara lena leta lia lino "
    "lora luma mara mera mina mira nara neta nia nola nova para pella pino quia rella riva sana "
    "sena sola tara tella tessa tino tona vana vera vico vina zana"
)

COLOURS = _listed(
    "moss green, slate grey, brick red, navy blue, cream, charcoal, sky blue, mustard yellow, "
    "off-white, plum, teal, burnt orange, sage, blush pink, chocolate brown, ivory, emerald green, "
    "silver grey, coral, midnight blue, sand, lavender, olive, jet black",
    ", ",
)
