"""Language identification: the package's own answers, faster, and no guess where there is too little."""

from __future__ import annotations

import pyarrow as pa
import pytest

from data.quality.languages import MIN_BYTES, as_bytes, identify
from data.quality.measures import measure_batch
from data.quality.rules import OneOf, QualityConfig, decide, rules_of

TEXTS = {
    "en": "The patient was seen on Monday and feels much better than in the week before.",
    "de": "Der Patient wurde am Montag gesehen und fühlt sich viel besser als in der Woche davor.",
    "fr": "Le patient a été vu lundi et se sent beaucoup mieux que la semaine précédente.",
    "ru": "Пациент был осмотрен в понедельник и чувствует себя намного лучше.",
    "zh": "今天天气很好，我们一起去公园散步吧，然后回家吃晚饭。",
    "ja": "今日は天気がとても良いので、一緒に公園を散歩しましょう。",
    "ar": "كان الطقس جميلا اليوم وذهبنا في نزهة إلى الحديقة مع الأصدقاء",
    "hi": "आज मौसम बहुत अच्छा है और हम बाज़ार जाएंगे",
}


def test_the_answers_are_the_packages_own() -> None:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    package = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    texts = [*TEXTS.values(), TEXTS["en"].upper(), TEXTS["de"] * 40, "cafe\u0301 au lait et croissants"]
    languages, chances = identify(texts)
    for text, language, chance in zip(texts, languages.to_pylist(), chances.to_pylist()):
        assert language == package.classify(text[:1000])[0]
        assert chance == pytest.approx(package.classify(text[:1000])[1], abs=1e-4)
    assert languages.to_pylist()[: len(TEXTS)] == list(TEXTS)


def test_too_little_is_undetermined() -> None:
    languages, chances = identify(["", "ok", "no thanks", "x" * (MIN_BYTES - 1)])
    assert languages.to_pylist() == ["und"] * 4
    assert chances.to_pylist() == [None] * 4
    assert identify([])[0].to_pylist() == []
    assert as_bytes("ABC ÄÖ") == "abc äö".encode()


def test_a_text_of_another_language_goes_only_when_sure() -> None:
    measures = measure_batch([*TEXTS.values(), "ok"])
    rules = rules_of(QualityConfig(languages=("en", "de")))
    assert isinstance(rules[-1], OneOf)
    first, _ = decide(measures, rules)
    kept = [at for at, rule in enumerate(first) if rule < 0]
    assert kept[:2] == [0, 1] and len(TEXTS) not in kept  # "ok" is too short for other rules, not for this one
    assert decide(measures, rules[-1:])[0][-1] == -1
    assert (decide(measures, [OneOf("languages", "language", 1.01, ("en",))])[0] == -1).all()
    dropped = decide(measures, rules[-1:])
    assert (dropped[1][dropped[0] == 0] >= 0.8).all() and (dropped[0] == 0).sum() == 6
    unsure = measures.set_column(
        measures.schema.get_field_index("language_p"), "language_p", pa.array([0.5] * len(measures), pa.float32())
    )
    assert (decide(unsure, rules[-1:])[0] == -1).all()
