"""The words that generated texts are made of: plain lists, and invented names spelled from syllables."""

from random import Random

NAMES = """Ada Amir Anya Arlo Aya Basil Bea Bruno Carla Cato Chen Clara Dana Dario Dina Edda Elias Emil Enzo Esra Fay
Felix Freya Gita Gus Hana Hugo Ida Igor Ines Ivo Jana Jonas Jun Kaya Kofi Lars Lena Lior Luca Mara Milo Mina Nadia Nils
Nora Olga Omar Otto Paola Pavel Petra Quinn Rafi Rita Rosa Sami Sana Sven Tara Theo Uma Vera Viktor Wanda Yara Yusuf Zoe
""".split()

PLACES = """harbour market orchard library station workshop bakery museum garden valley lighthouse bridge village tower
theatre mill quarry meadow canal castle observatory school warehouse courtyard laboratory island forest monastery inn
airfield foundry vineyard reservoir tunnel plaza hospital pier dairy greenhouse printing-house""".split()

NOUNS = """lantern map kettle letter ladder violin basket clock coat compass mirror rope boat wheel candle drum key bell
hammer notebook bottle carpet fence engine stone window table chair curtain shelf blanket ticket coin ring spoon plate
barrel wagon saddle anchor sail telescope magnet battery cable pump valve lens prism scale brush canvas needle thread
button pocket glove boot scarf hat umbrella suitcase parcel stamp envelope pencil chalk slate puzzle whistle kite
marble dice puppet mask cloak banner flag statue fountain gate path hedge hive nest feather shell pebble branch root
leaf seed grain loaf pie cake jar honey butter cheese apple pear plum cherry lemon onion carrot pepper pumpkin bean
radio camera screen keyboard printer sensor antenna satellite rocket parachute balloon tractor bicycle tram
ferry""".split()

ADJECTIVES = """old small heavy bright quiet broken golden silver wooden narrow wide deep hollow dusty clean cold warm
strange simple careful patient clever stubborn gentle brave nervous famous forgotten hidden empty crowded distant
ancient modern fragile sturdy smooth rough sharp blunt pale dark green red blue yellow purple copper iron glass woven
painted polished crooked straight round square tall short thick thin quick slow loud soft sweet bitter""".split()

VERBS = """carried found repaired painted lifted counted measured opened closed borrowed returned bought sold wrapped
hid discovered examined polished sketched described followed watched ignored remembered forgot cleaned built broke
traded weighed moved pushed pulled dropped caught tied untied sorted labelled packed unpacked loaded tested copied
mended admired inspected turned balanced washed dried folded""".split()

ADVERBS = """slowly quickly quietly carefully suddenly later again finally often rarely together alone patiently
eagerly calmly proudly gladly almost certainly perhaps soon""".split()

PLANS = """to reach the coast before winter|to learn how the machine worked|to surprise an old friend|to earn enough for
the journey|to win the yearly contest|to keep the promise|to solve the riddle of the tower|to find a quieter place to
work|to finish the work before dark|to prove that it could be done|to learn what the stranger wanted|to save the
harvest|to send word to the others|to make peace with the neighbours""".replace("\n", " ").split("|")

FIELDS = """name kind size weight price level status owner zone batch speed depth width height angle power rate count
score grade color phase slot rank load stock delay limit offset length value index temp humidity pressure voltage
current torque mass volume area age year month day hour minute total share""".split()

STATES = """ready waiting running stopped failed queued active idle open closed sealed locked empty full shipped packed
checked passed pending approved rejected online offline warm cold stable rising falling""".split()

ACTIONS = """get set load save read write parse format merge split sort filter count find update remove insert append
check validate build make compute reduce scan encode decode convert fetch send reset init apply select group join
normalize resize rotate shift""".split()

THINGS = """items rows cells nodes edges users orders prices tokens words lines pages files paths blocks chunks frames
points vectors matrix table queue stack graph tree buffer cache record event message signal sample batch weights scores
labels groups parts steps tasks jobs logs keys values entries counts ranges limits totals""".split()

_ONSETS = "b c d f g h j k l m n p r s t v w z br cr dr fl gr kl pr sl st tr th sh".split()
_NUCLEI = "a e i o u ai ea ei ia io ou".split()
_CODAS = ["", "", "", "n", "r", "l", "s", "m", "k", "t", "nd", "rn", "st"]


def invented(rng: Random, syllables: int = 2) -> str:
    """A pronounceable word that is in no dictionary, e.g. "bresol"."""
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_NUCLEI) + (rng.choice(_CODAS) if i else "") for i in range(syllables)
    )
