"""Words of quantity: units, currencies, numbers and how often, months and days.

Lower-cased as `data.text.normalize` leaves them. English is covered widely, other languages by their most frequent
words.
"""

from __future__ import annotations

from data.dedup.lists import numbered, table, words

# Units that mean a measure wherever they stand; of the others only those after a number count.
MEASURES = table("""
    mg mgs milligram milligrams milligramm milligramme milligrammes milligramo milligramos milligrammi мг 毫克
    mcg ug µg μg microgram micrograms mikrogramm microgramme microgrammes мкг 微克
    ng nanogram nanograms нг 纳克
    kg kgs kilogram kilograms kilogramm kilogrammes кг 公斤 千克
    ml mls milliliter milliliters millilitre millilitres мл 毫升
    dl deciliter deciliters decilitre
    µl μl microliter microliters microlitre microlitres 微升
    mmol millimol millimole millimoles ммоль
    µmol μmol umol micromol micromole micromoles
    nmol nanomol
    meq milliequivalent milliequivalents
    iu
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
UNITS = MEASURES | table("""
    ‰
    ml cc
    kg kilo kilos
    iu ie ui
    µl ul
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
CURRENCY = table("""
    usd $
    eur €
    gbp £
    jpy ¥
    inr ₹ rs
    rub ₽
    krw ₩
    cny rmb
    chf
    sek
    nok
    dkk
    aud
    cad
""")
UNITS |= CURRENCY
# Between two units ("mg per day"), never units themselves.
PER = words("per a an each every pro par por")

# "one" is a pronoun: it counts before a unit only.
NUMBER_WORDS = table("""
    0 zero
    2 two
    3 three
    4 four
    5 five
    6 six
    7 seven
    8 eight
    9 nine
    10 ten
    11 eleven
    12 twelve dozen
    13 thirteen
    14 fourteen
    15 fifteen
    16 sixteen
    17 seventeen
    18 eighteen
    19 nineteen
    20 twenty
    30 thirty
    40 forty
    50 fifty
    60 sixty
    70 seventy
    80 eighty
    90 ninety
    100 hundred
    1000 thousand
    1000000 million
    1000000000 billion
    1/2 half
""")
ORDINAL_WORDS = table("""
    1. first
    2. second
    3. third
    4. fourth
    5. fifth
    6. sixth
    7. seventh
    8. eighth
    9. ninth
    10. tenth
    11. eleventh
    12. twelfth
""")
ORDINAL_ENDINGS = words("st nd rd th")
ROMAN = words("ii iii iv vi vii viii ix xi xii xiii xiv xv xvi xvii xviii xix iia iib iic iiia iiib iiic iva ivb")
FREQUENCY = table("""
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
# Words with other senses, so a word of time must follow them.
COUNTED = {"once": "1 time", "twice": "2 time", "thrice": "3 time"}
AFTER_COUNTED = frozenset(FREQUENCY) | PER | words("in at more before after")
# A single letter after these is a name: "hepatitis B", "stage I".
DESIGNATORS = words(
    "type types stage grade class group phase part level category hepatitis vitamin vitamins influenza factor plan "
    "option section chapter volume room gate building block unit appendix exhibit schedule lot model version "
    "line zone ward bipolar"
)

MONTHS = numbered(
    """
    january jan januar janvier enero gennaio januari janeiro января
    february feb februar février febrero febbraio februari fevereiro февраля
    march mar märz mars marzo maart março марта
    april apr avril abril aprile апреля
    may mai mayo maggio mei maio мая
    june jun juni juin junio giugno junho июня
    july jul juli juillet julio luglio julho июля
    august aug août agosto augustus августа
    september sep sept septembre septiembre settembre setembro сентября
    october oct oktober octobre octubre ottobre outubro октября
    november nov novembre noviembre novembro ноября
    december dec dezember dez décembre diciembre dicembre dezembro декабря
    """,
    start=1,
)
# Names that are nothing but a month; all others count beside a number, or after one of the words below.
PLAIN_MONTHS = words(
    "january february april june july august september october november december januar februar juni juli oktober "
    "dezember janvier février avril juin juillet août septembre octobre novembre décembre enero febrero abril junio "
    "julio septiembre octubre noviembre diciembre"
)
BEFORE_MONTH = words("in of since until till by during this last next early late mid")
WEEKDAYS = table("""
    monday mondays mon montag lundi lunes lunedì maandag понедельник
    tuesday tuesdays tue tues dienstag mardi martes martedì dinsdag вторник
    wednesday wednesdays wed mittwoch mercredi miércoles mercoledì woensdag среда
    thursday thursdays thu thur thurs donnerstag jeudi jueves giovedì donderdag четверг
    friday fridays fri freitag vendredi viernes venerdì vrijdag пятница
    saturday saturdays sat samstag samedi sábado sabato zaterdag суббота
    sunday sundays sun sonntag dimanche domingo domenica zondag воскресенье
""")
# Too short, or too common in another sense, to count away from a number.
SHORT_WEEKDAYS = words("mon tue tues wed thu thur thurs fri sat sun")
RELATIVE_DAYS = table("""
    today heute
    tomorrow morgen demain mañana
    yesterday gestern ayer
""")
