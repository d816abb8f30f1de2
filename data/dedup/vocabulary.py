"""Words whose change makes another statement: negation, sides and episodes.

Lower-cased as `data.text.normalize` leaves them. English is covered widely, other languages by their most frequent
words. A word is left out where its everyday sense would cost more kept copies than it saves statements.
"""

from __future__ import annotations

from data.dedup.lists import table, words

NEGATION = table("""
    not cannot cant dont doesnt didnt isnt wasnt arent werent couldnt shouldnt wouldnt havent hasnt hadnt aint
    no
    none
    nobody
    nothing
    nowhere
    nor
    neither
    never
    without
    deny denies denied denying
    absent absence
    negative negatives neg negatively
    nil
    lack lacks lacked lacking
    fail fails failed failing
    except excluding excluded exclude excludes
    refuse refuses refused refusing
    reject rejects rejected rejecting
    decline declines declined declining
    cancel cancels canceled cancelled canceling cancelling
    discontinue discontinues discontinued discontinuing
    unable inability
    abnormal
    unstable
    unlikely
    unauthorized unauthorised
    unapproved
    unconfirmed
    unpaid
    incomplete
    incorrect
    invalid
    inactive
    ineligible
    asymptomatic
    afebrile
    atraumatic
    uncomplicated
    unspecified
    nicht
    kein keine keinen keinem keiner keines
    ohne
    nie niemals
    pas
    sans
    jamais
    aucun aucune
    non
    sin
    nunca
    ningún ninguna ninguno
    senza
    nessun nessuna nessuno
    não
    sem
    niet
    geen
    zonder
    nooit
    не
    нет
    без
    никогда
    لا
    ليس
    بدون
    नहीं
    बिना
    không
""")
# "nondisplaced" negates, these do not.
NO_NEGATION = words("nonetheless nonsense nonstop nonchalant nonchalantly nonfiction nonprofit nonprofits")
# In mail footers these say nothing about what a text states, so a copy with a footer is still a copy: what follows the
# negation. (A font's name in a style is of that kind too.)
FOOTER_NEGATIONS = {
    negation: [phrase.split() for phrase in phrases.split(", ")]
    for negation, phrases in {
        "not": "reply to this, reply to it, reply directly, respond to this, respond to it, the intended, an intended, "
        "intended for you, the addressee, the named, displayed correctly, displayed properly, display correctly, "
        "display properly, displaying correctly, displaying properly, see this email, see this mail, "
        "see this message, view this email, view this mail, view this message, view images, wish to receive, "
        "want to receive, accept liability, accept any liability, accept responsibility, accept any responsibility, "
        "be liable, print this, disseminate",
        "no": "longer wish, longer want, liability, responsibility is, warranty, reply to this",
        "sans": "serif",
        "without": "prior written, written permission, prior permission",
    }.items()
}

SIDES = table("""
    left leftward leftwards lefthand lhs lt
    right rightward rightwards righthand rhs rt
    left links linke linken linker linkes linkem gauche izquierda izquierdo sinistra sinistro esquerda esquerdo
    right rechts rechte rechten rechter rechtes rechtem droite droit derecha derecho destra destro direita direito
    left левый левая левое левого левой левую левом
    right правый правая правое правого правой правую правом
    bilateral bilaterally beidseits beidseitig bilatéral bilatérale
    unilateral unilaterally einseitig
    ipsilateral
    contralateral
    anterior
    posterior
    medial
    lateral
    proximal
    distal
    dorsal
    ventral
    upper
    lower
    superior
    inferior
""")
EYES = {"od": "right", "os": "left", "ou": "bilateral"}
EYE_WORDS = words("eye eyes vision va iop sphere cylinder visual")
# Before a part of the body only: "R knee", "both eyes".
SIDE_LETTERS = {"l": "left", "r": "right", "both": "bilateral"}
BODY = words(
    "abdomen ankle ankles arm arms axilla back bicep breast breasts buttock calf cheek chest clavicle cornea ear ears "
    "elbow elbows eye eyes eyelid eyelids face femur fibula finger fingers flank foot feet forearm forearms groin hand "
    "hands heel heels hip hips humerus iris jaw kidney kidneys knee knees leg legs lid lids limb limbs lobe lung lungs "
    "mandible nostril ovary ovaries palm pelvis radius retina rib ribs shin shins shoulder shoulders side sides sided "
    "sole temple testicle testis thigh thighs thumb thumbs tibia toe toes tonsil ulna ureter wrist wrists"
)

# Which visit of a case it is, and how an injury heals: each word counts before one of its nouns only.
EPISODES = {
    word: words(nouns)
    for word, nouns in {
        "initial": "encounter visit episode care admission consultation",
        "subsequent": "encounter visit episode care admission consultation",
        "routine": "healing",
        "delayed": "healing",
        "open": "fracture fractures wound wounds reduction",
        "closed": "fracture fractures wound wounds reduction",
    }.items()
}
OUTCOMES = table("""
    sequela sequelae
    malunion malunions
""")
