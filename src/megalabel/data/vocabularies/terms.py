"""The terms of SKOS and of others that are read in its files."""

from __future__ import annotations

from megalabel.data.concepts import HIDDEN, OTHER, PREFERRED

SKOS = "http://www.w3.org/2004/02/skos/core#"
SKOSXL = "http://www.w3.org/2008/05/skos-xl#"
ISO_THES = "http://purl.org/iso25964/skos-thes#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
DCT = "http://purl.org/dc/terms/"

TYPE, SUBCLASS, LABEL = f"{RDF}type", f"{RDFS}subClassOf", f"{RDFS}label"
FIRST, REST = f"{RDF}first", f"{RDF}rest"
LITERALS = (f"{SKOSXL}literalForm", f"{RDF}value")  # of a node that holds a text
CONCEPT, SCHEME = f"{SKOS}Concept", f"{SKOS}ConceptScheme"
COLLECTIONS = (
    f"{SKOS}Collection",
    f"{SKOS}OrderedCollection",
    f"{ISO_THES}ThesaurusArray",
    f"{ISO_THES}ConceptGroup",
)
MEMBER, MEMBER_LIST = f"{SKOS}member", f"{SKOS}memberList"
IN_SCHEME, TOP_OF, HAS_TOP = f"{SKOS}inScheme", f"{SKOS}topConceptOf", f"{SKOS}hasTopConcept"
NOTATION = f"{SKOS}notation"
DESCRIPTIONS = (f"{SKOS}definition", f"{SKOS}scopeNote")
DEPRECATED = f"{OWL}deprecated"
REPLACED, REPLACES = f"{DCT}isReplacedBy", f"{DCT}replaces"
XL_LABEL = f"{SKOSXL}Label"

# the names of a concept, given as texts and as nodes that hold them
NAMED_BY = {
    f"{SKOS}prefLabel": PREFERRED,
    f"{SKOS}altLabel": OTHER,
    f"{SKOS}hiddenLabel": HIDDEN,
}
NAMED_BY_NODE = {
    f"{SKOSXL}prefLabel": PREFERRED,
    f"{SKOSXL}altLabel": OTHER,
    f"{SKOSXL}hiddenLabel": HIDDEN,
}
LINKED_BY = {
    f"{SKOS}broader": "broader",
    f"{ISO_THES}broaderGeneric": "broader",
    f"{ISO_THES}broaderPartitive": "broader",
    f"{ISO_THES}broaderInstantial": "broader",
    f"{SKOS}narrower": "narrower",
    f"{ISO_THES}narrowerGeneric": "narrower",
    f"{ISO_THES}narrowerPartitive": "narrower",
    f"{ISO_THES}narrowerInstantial": "narrower",
    f"{SKOS}related": "related",
}
# types that say nothing of what a concept is, and those of what defines terms
PLAIN_TYPES = (
    CONCEPT,
    f"{OWL}NamedIndividual",
    f"{OWL}Thing",
    f"{RDFS}Resource",
)
DEFINING = (RDF, RDFS, OWL)
