"""The protected words of scripts without spaces (Chinese, Japanese), and words in which their characters say nothing.

A text in such a script is cut into these words and the runs between them.
"""

from __future__ import annotations

from data.dedup.drugs import HAN_STEMS
from data.dedup.lists import table, words
from data.dedup.units import UNITS

# 非常 is "very", 左右 "about", 千万 "by all means": none is an item.
PLAIN = words(
    "非常 非洲 未来 未來 无论 無論 不论 不論 不仅 不僅 不但 不过 不過 不断 不斷 不少 不久 不同 不管 除非 莫名 "
    "莫斯科 未婚夫 未婚妻 無料 無線 无线 左右 是否 能否 可否 与否 万一 千万 十分 一一 星期"
)
NEGATION = table("""
    不
    没 沒
    无 無
    未
    非
    勿
    莫
    否
    ない なし なかった ません ありません
""")
SIDES = table("""
    left 左
    right 右
    bilateral 双侧 雙側 两侧 兩側 両側
""")
DAYS = table("""
    monday 星期一 周一 月曜
    tuesday 星期二 周二 火曜
    wednesday 星期三 周三 水曜
    thursday 星期四 周四 木曜
    friday 星期五 周五 金曜
    saturday 星期六 周六 土曜
    sunday 星期日 星期天 周日 日曜
    today 今天 今日
    tomorrow 明天 明日
    yesterday 昨天 昨日
    后天 後天
    前天
    今年
    明年
    去年
    本月
    下月
    上月
""")
# Korean is written with spaces, but its negation is a part of words.
HANGUL_NEGATION = ("없", "않", "아니")
PERCENT = "百分之"
DIGITS = {char: str(value) for value, char in enumerate("零一二三四五六七八九")} | {"两": "2", "兩": "2", "〇": "0"}
NUMERALS = "〇零一二三四五六七八九十百千万亿两兩"
# 一个 is "a", as 一 is with these.
ARTICLES = words("个 個 位 名 只 张 張 本 台 辆 条 家 场 项 句 杯")
DATE_UNITS = words("年 月 日 号 號")


def is_unspaced(word: str) -> bool:
    """Whether a word of these lists is written in a script without spaces."""
    return word[0] >= "\u3040"


UNSPACED_UNITS = words(" ".join(filter(is_unspaced, UNITS)))
SPECIAL = sorted(
    PLAIN | UNSPACED_UNITS | {PERCENT} | set(NEGATION) | set(SIDES) | set(DAYS) | set(HAN_STEMS),
    key=lambda word: (-len(word), word),
)
# Where no character of these stands, there is nothing to look for.
FIRST = "".join(sorted({word[0] for word in SPECIAL} | set(NUMERALS) | {"第"}))
