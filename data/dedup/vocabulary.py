"""Words whose change makes another statement: units, calendar, negation, sides, and where an order of words is a form.

Lower-cased as `data.text.normalize` leaves them. English is covered widely, other languages by their most frequent
words. A word is left out where its everyday sense would cost more kept copies than it saves statements.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(text: str) -> dict[str, str]:
    """One line a value: the canonical word, then every other way to write it."""
    table: dict[str, str] = {}
    for line in text.strip().splitlines():
        canonical, *others = line.split()
        table.update(dict.fromkeys((canonical, *others), canonical))
    return table


# Units that mean a measure wherever they stand; of the others only those after a number count.
MEASURES = _table("""
    mg mgs milligram milligrams milligramm milligramme milligrammes milligramo milligramos milligrammi мг 毫克
    mcg ug µg μg microgram micrograms mikrogramm microgramme microgrammes мкг 微克
    ng nanogram nanograms нг 纳克
    kg kgs kilogram kilograms kilo kilos kilogramm kilogrammes кг 公斤 千克
    ml mls milliliter milliliters millilitre millilitres cc мл 毫升
    dl deciliter deciliters decilitre
    µl μl ul microliter microliters microlitre microlitres 微升
    mmol millimol millimole millimoles ммоль
    µmol μmol umol micromol micromole micromoles
    nmol nanomol
    meq milliequivalent milliequivalents
    iu ui ie international-units
    mmhg
    kpa
    kcal kcals kilocalorie kilocalories
    kj kilojoule kilojoules
    mm millimeter millimeters millimetre millimetres мм 毫米
    cm centimeter centimeters centimetre centimetres см 厘米
    km kilometer kilometers kilometre kilometres км 公里 千米
    mph
    kwh
    khz kilohertz
    mhz megahertz
    ghz gigahertz
    % percent pct procent prozent procento
""")
UNITS = MEASURES | _table("""
    ‰
    ° degree degrees deg grad grados 度
    g gr gram grams gramm gramme grammes gramo gramos г 克
    t ton tons tonne tonnes 吨
    lb lbs pound pounds
    oz ounce ounces
    st stone stones
    l lt liter liters litre litres litro litros л 升
    gal gallon gallons
    pt pint pints
    m meter meters metre metres metro metros м 米
    ft foot feet
    inch inches
    yd yard yards
    mi mile miles
    mol mole moles моль
    u unit units unidad unidades einheit einheiten ед 单位
    pa
    bar
    psi
    hz hertz
    w watt watts
    kw kilowatt kilowatts
    mw megawatt megawatts
    v volt volts
    ma milliampere milliamp milliamps
    ms msec millisecond milliseconds 毫秒
    s sec secs second seconds sekunde sekunden seconde secondes segundo segundos 秒
    min mins minute minutes minuten minuto minutos мин 分钟 分
    h hr hrs hour hours stunde stunden heure heures hora horas ч 小时 時間
    day days tag tage tagen jour jours día días giorno giorni dag dagen день дня дней 天 日
    week weeks wk wks woche wochen semaine semaines semana semanas 周 週 星期
    month months mo mos monat monate monaten mois mes meses mese mesi 个月 個月 月
    year years yr yrs jahr jahre jahren ans année années año años anno anni jaar 年 岁 歳
    decade decades
    century centuries
    fortnight fortnights
    night nights
    time times fold mal fois veces 次 回 倍
    dose doses 剂
    tablet tablets tab tabs tablette tabletten comprimé comprimés comprimido comprimidos 片 錠
    capsule capsules cap caps kapsel kapseln gélule gélules cápsula cápsulas 粒
    pill pills
    puff puffs
    drop drops gtt gtts tropfen goutte gouttes gota gotas 滴
    spray sprays
    ampoule ampoules ampule ampules amp amps 支
    vial vials
    sachet sachets
    patch patches
    suppository suppositories
    teaspoon teaspoons tsp
    tablespoon tablespoons tbsp
    cup cups
    glass glasses
    bottle bottles 瓶
    box boxes 盒
    pack packs package packages packet packets
    piece pieces pcs 件
    item items
    copy copies
    page pages 页
    person persons people 人
    个 個 位 名 只 张 張 本 台 辆 条 家 场 项 句 杯 楼 层 届 级
    dozen
    hundred hundreds
    thousand thousands k tsd
    million millions mio mn millionen millones 万
    billion billions bn milliarde milliarden milliards 亿
    trillion trillions
    lakh lakhs
    crore crores
    usd dollar dollars $ us$ 美元
    eur euro euros € 欧元
    gbp sterling £ 英镑
    jpy yen ¥ 日元 円
    cny rmb yuan 元 块
    inr rupee rupees rs ₹
    chf franken francs
    rub ruble rubles rouble roubles ₽
    krw won ₩
    cent cents
    pence
    byte bytes
    kb kilobyte kilobytes
    mb megabyte megabytes
    gb gigabyte gigabytes
    tb terabyte terabytes
    bit bits
    kbps
    mbps
    gbps
    px pixel pixels
    dpi
    am
    pm
    uhr
    c celsius
    f fahrenheit
    kelvin
    bpm
    rpm
    diopter diopters dioptre dioptres
    gy gray
    mgy
""")
# Between two units ("mg per day"); the last few only there, never as units themselves.
PER = _words("per a an each every pro par por")
CURRENCY = {
    "$": "usd", "€": "eur", "£": "gbp", "¥": "jpy", "₹": "inr", "₽": "rub", "₩": "krw",
    "usd": "usd", "eur": "eur", "gbp": "gbp", "chf": "chf", "jpy": "jpy", "cny": "cny", "rmb": "cny", "inr": "inr",
    "rs": "inr", "rub": "rub", "krw": "krw", "sek": "sek", "nok": "nok", "dkk": "dkk", "aud": "aud", "cad": "cad",
}  # fmt: skip

# "one" is a pronoun: a number only before a unit.
NUMBER_WORDS = dict(
    zip(
        [
            "zero",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
            "thirty",
            "forty",
            "fifty",
            "sixty",
            "seventy",
            "eighty",
            "ninety",
        ],
        [
            "0",
            "2",
            "3",
            "4",
            "5",
            "6",
            "7",
            "8",
            "9",
            "10",
            "11",
            "12",
            "13",
            "14",
            "15",
            "16",
            "17",
            "18",
            "19",
            "20",
            "30",
            "40",
            "50",
            "60",
            "70",
            "80",
            "90",
        ],
        strict=True,
    )
) | {"half": "1/2", "dozen": "12", "hundred": "100", "thousand": "1000", "million": "1e6", "billion": "1e9"}
ORDINAL_WORDS = {
    word: f"{number}."
    for number, word in enumerate(
        [
            "first",
            "second",
            "third",
            "fourth",
            "fifth",
            "sixth",
            "seventh",
            "eighth",
            "ninth",
            "tenth",
            "eleventh",
            "twelfth",
        ],
        start=1,
    )
}
ORDINAL_ENDINGS = _words("st nd rd th")
ROMAN = _words("ii iii iv vi vii viii ix xi xii xiii xiv xv xvi xvii xviii xix xx iia iib iic iiia iiib iiic iva ivb")
# How often; "once" and "twice" have other senses, so a word of time must follow them.
FREQUENCY = _table("""
    hourly
    daily
    nightly
    weekly
    biweekly fortnightly
    monthly
    quarterly
    yearly annually
    bid
    tid
    qid
    qd
    qod
    qhs
    prn
""")
COUNTED = {"once": "1 time", "twice": "2 time", "thrice": "3 time"}
AFTER_COUNTED = frozenset(FREQUENCY) | PER | _words("in at more before after")
# What a single letter or Roman numeral after these names: "hepatitis B", "stage I", "exit C".
DESIGNATORS = _words(
    "type types stage grade class group phase part level category hepatitis vitamin vitamins influenza factor plan "
    "option section chapter volume room gate building block unit appendix exhibit schedule lot model version "
    "line zone ward bipolar"
)

MONTHS = {
    word: number
    for number, line in enumerate(
        """january jan januar janvier enero gennaio januari janeiro января 一月
        february feb februar février febrero febbraio februari fevereiro февраля 二月
        march mar märz mars marzo maart março марта 三月
        april apr avril abril aprile апреля 四月
        may mai mayo maggio mei maio мая 五月
        june jun juni juin junio giugno junho июня 六月
        july jul juli juillet julio luglio julho июля 七月
        august aug août agosto augustus августа 八月
        september sep sept septembre septiembre settembre setembro сентября 九月
        october oct oktober octobre octubre ottobre outubro октября 十月
        november nov novembre noviembre novembro ноября 十一月
        december dec dezember dez décembre diciembre dicembre dezembro декабря 十二月""".splitlines(),
        start=1,
    )
    for word in line.split()
}
# Full names that are nothing but a month; all others count beside a number only.
PLAIN_MONTHS = _words(
    "january february april june july august september october november december januar februar juni juli oktober "
    "dezember janvier février avril juin juillet août septembre octobre novembre décembre enero febrero abril junio "
    "julio septiembre octubre noviembre diciembre"
)
BEFORE_MONTH = _words("in of since until till by during this last next early late mid")
WEEKDAYS = _table("""
    monday mon montag lundi lunes lunedì maandag понедельник 星期一 周一
    tuesday tue tues dienstag mardi martes martedì dinsdag вторник 星期二 周二
    wednesday wed mittwoch mercredi miércoles mercoledì woensdag среда 星期三 周三
    thursday thu thur thurs donnerstag jeudi jueves giovedì donderdag четверг 星期四 周四
    friday fri freitag vendredi viernes venerdì vrijdag пятница 星期五 周五
    saturday sat samstag samedi sábado sabato zaterdag суббота 星期六 周六
    sunday sun sonntag dimanche domingo domenica zondag воскресенье 星期日 星期天 周日
""") | {f"{day}s": day for day in ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]}
# Too short or too common to count away from a number.
SHORT_WEEKDAYS = _words("mon tue tues wed thu thur thurs fri sat sun")
RELATIVE_DAYS = _table("""
    today heute 今天 今日
    tomorrow morgen demain mañana 明天 明日
    yesterday gestern ayer 昨天 昨日
    后天 後天
    前天
    今年
    明年
    去年
    本月
    下月
    上月
""")

NEGATION = _table("""
    not cannot cant dont doesnt didnt isnt wasnt arent werent couldnt shouldnt wouldnt havent hasnt hadnt aint nt
    no
    none
    nobody
    nothing
    nowhere
    nor
    neither
    never
    without w/o wo
    deny denies denied denying
    absent absence
    negative negatives neg negatively
    nil
    lack lacks lacked lacking
    fail fails failed failing
    except excluding excluded exclude excludes
    refuse refuses refused refusing
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
    noncompliant non-compliant
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
NEGATION.pop("wo")
NON_EXCEPTIONS = _words("none nonetheless nonsense nonstop nonchalant nonchalantly nonfiction nonprofit nonprofits")
# In mail footers these say nothing about what a text states, so a copy with a footer is still a copy: what follows the
# negation.
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
        "without": "prior written, written permission, prior permission",
    }.items()
}
FOOTER_WORDS = 3

SIDES = _table("""
    left leftward left-sided lefthand lhs lt links linke linken linker linkes gauche izquierda izquierdo sinistra sinistro esquerda esquerdo левый левая левое левого левой левую 左
    right rightward right-sided righthand rhs rt rechts rechte rechten rechter rechtes droite droit derecha derecho destra destro direita direito правый правая правое правого правой правую 右
    bilateral bilaterally beidseits beidseitig bilatéral bilatérale 双侧 雙側 两侧 兩側 両側
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
""")  # noqa: E501
EYES = {"od": "right", "os": "left", "ou": "bilateral"}
EYE_WORDS = _words("eye eyes vision va iop sphere cylinder visual")
SIDE_LETTERS = {"l": "left", "r": "right"}
BODY = _words(
    "abdomen ankle ankles arm arms axilla back bicep breast breasts buttock calf cheek chest clavicle cornea ear ears "
    "elbow elbows eye eyes eyelid eyelids face femur fibula finger fingers flank foot feet forearm forearms groin hand "
    "hands heel heels hip hips humerus iris jaw kidney kidneys knee knees leg legs lid lids limb limbs lobe lung lungs "
    "mandible nostril ovary ovaries palm pelvis radius retina rib ribs shin shins shoulder shoulders side sides sided "
    "sole temple testicle testis thigh thighs thumb thumbs tibia toe toes tonsil ulna ureter wrist wrists"
)
# Which visit of a case it is, as in "initial encounter".
EPISODES = {"initial": "initial", "subsequent": "subsequent"}
AFTER_EPISODE = _words("encounter visit episode care admission consultation")

# Characters that negate in Chinese and Japanese, and words in which such a character, a side or a numeral says nothing.
HAN_NEGATION = "不没沒無无未非勿莫否"
HAN_PLAIN = [
    "非常",
    "非洲",
    "未来",
    "未來",
    "无论",
    "無論",
    "不论",
    "不論",
    "不仅",
    "不僅",
    "不但",
    "不过",
    "不過",
    "不断",
    "不斷",
    "不少",
    "不久",
    "不同",
    "不管",
    "差不多",
    "除非",
    "莫名",
    "未婚夫",
    "未婚妻",
    "無料",
    "無線",
    "无线",
    "左右",
    "是否",
    "能否",
    "可否",
    "与否",
    "莫斯科",
    "万一",
    "千万",
    "十分",
    "一一",
]
KANA_NEGATION = ["ありません", "ません", "なかった", "ない", "なし"]
HANGUL_NEGATION = ("없", "않", "아니")
HAN_DIGITS = {char: str(value) for value, char in enumerate("零一二三四五六七八九")} | {"两": "2", "兩": "2", "〇": "0"}
HAN_NUMERALS = "〇零一二三四五六七八九十百千万亿两兩"
HAN_ARTICLES = _words("个 個 位 名 只 张 張 本 台 辆 条 家 场 项 句 杯")
HAN_DATE_UNITS = _words("年 月 日 号 號")


def is_unspaced(word: str) -> bool:
    """Whether a word of these lists is written in a script without spaces."""
    return word[0] >= "\u3040"


HAN_UNITS = sorted(filter(is_unspaced, UNITS), key=lambda unit: (-len(unit), unit))
