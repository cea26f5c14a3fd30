"""Question packs: what the shipped one holds, and how bad ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradtui.i18n import LANGUAGES
from gradtui.lesson import questions as bank
from gradtui.lesson.questions import Pack, Question, QuizError, load_pack, load_packs
from gradtui.metrics import SELECTABLE

PRESETS = {"post-ln", "pre-ln", "post-rms", "pre-rms", "post-ln-warmup", "post-ln-deep", "pre-rms-100"}

LESSON_QUESTIONS = {
    "q1": "画出 Pre-LN 和 Post-LN 的数据流公式差异。",
    "q2": "为什么 Pre-LN 结构下深层网络更容易训练？",
    "q3": "RMSNorm 相比传统 LayerNorm 砍掉了哪个数学步骤？",
    "q4": "为什么去掉均值计算不会损害大语言模型的效果？",
    "q5": "在设计存活表上，归一化部件从 2017 到 2026 经历了怎样的接力？",
}
LESSON_EXPLANATIONS = {
    "q1": "Post-LN 为 x_(l+1) = LN(x_l + f(x_l))；Pre-LN 为 x_(l+1) = x_l + f(LN(x_l))。",
    "q2": "因为 Pre-LN 保证了主干道是无干扰的加法连加 x_L = x_0 + Σ f_l，"
    "求导时梯度可以无阻碍地直通最底层，避免了浅层梯度消失。",
    "q3": "砍掉了均值计算（μ = (1/d)·Σ x_i）与中心化减均值（x_i − μ）步骤，只保留均方根除法与可学习参数缩放。",
    "q4": "实验证明归一化之所以稳定训练，核心在于控制特征向量的模长尺度（Scale），防止数值发散；"
    "而原点平移（Shift）对语义表征无实质帮助。",
    "q5": "经历了两步接力：第一步从 2017 的 Post-LN 变为 Pre-LN（解决拓扑稳定性）；"
    "第二步从 Pre-LN 演进为 Pre-RMSNorm（极致精简与显存加速，K3 最终选择）。",
}

GOOD = """\
title.en = "Mine"
[[questions]]
id = "a"
question.en = "Why?"
explanation.en = "Because."
"""


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The developer's own question packs must not leak into the tests."""
    directory = tmp_path / "config" / "questions"
    monkeypatch.setattr(bank, "user_directory", lambda: directory)
    return directory


@pytest.fixture(scope="module")
def day15() -> Pack:
    return load_pack(bank.shipped_directory() / "day15.toml")


def write(directory: Path, text: str, name: str = "mine.toml") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(directory: Path, text: str) -> str:
    path = write(directory, text)
    with pytest.raises(QuizError) as refused:
        load_pack(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


class TestDay15:
    def test_asks_the_five_questions_in_the_lessons_words(self, day15: Pack) -> None:
        assert {question.id: question.question.zh for question in day15.questions} == LESSON_QUESTIONS
        assert day15.keys == ("day15/q1", "day15/q2", "day15/q3", "day15/q4", "day15/q5")

    def test_explains_in_the_lessons_words(self, day15: Pack) -> None:
        assert {q.id: q.explanation.zh for q in day15.questions} == LESSON_EXPLANATIONS

    def test_says_everything_in_every_language(self, day15: Pack) -> None:
        assert set(day15.title.given()) == set(LANGUAGES)
        for question in day15.questions:
            assert question.note is not None
            assert question.show is not None
            for text in (question.question, question.explanation, question.note, question.show.look):
                assert set(text.given()) == set(LANGUAGES)
                for line in text.given().values():
                    assert line.strip() == line
                    assert "\n" not in line
                    assert "  " not in line
            points = question.key_points.given()
            assert set(points) == set(LANGUAGES)
            assert len({len(lines) for lines in points.values()}) == 1
            assert 2 <= len(question.key_points.get("en")) <= 4

    def test_english_is_english_and_chinese_is_chinese(self, day15: Pack) -> None:
        def chinese(text: str) -> bool:
            return any("一" <= character <= "鿿" for character in text)

        for question in day15.questions:
            assert question.note is not None
            assert question.show is not None
            texts = (question.question, question.explanation, question.note, question.show.look)
            assert all(chinese(text.zh) and not chinese(text.en) for text in texts if text.en != text.zh)
            assert all(map(chinese, question.key_points.zh))
            assert not any(map(chinese, question.key_points.en))

    def test_shows_only_presets_and_metrics_that_exist(self, day15: Pack) -> None:
        for question in day15.questions:
            assert question.show is not None
            assert question.show.missing(PRESETS) == ()
            assert question.show.pins
            assert question.show.metric in SELECTABLE
            assert "step" in question.show.look.en
            assert "步" in question.show.look.zh


@pytest.mark.parametrize("metric", SELECTABLE)
def test_a_question_may_show_every_metric_that_the_lab_cycles_through(tmp_path: Path, metric: str) -> None:
    text = f"{GOOD}show.focus = 'pre-ln'\nshow.look.en = 'x'\nshow.metric = '{metric}'"
    [question] = load_pack(write(tmp_path, text)).questions
    assert question.show is not None
    assert question.show.metric == metric


def test_a_question_is_found_by_its_key(day15: Pack) -> None:
    question: Question = day15.get("day15/q3")
    assert question.id == "q3"
    assert day15.key(question) == "day15/q3"
    with pytest.raises(KeyError):
        day15.get("day15/q9")


def test_show_names_the_presets_it_lacks(day15: Pack) -> None:
    show = day15.questions[1].show
    assert show is not None
    assert show.presets == ("post-ln", "pre-ln")
    assert show.missing({"pre-ln"}) == ("post-ln",)


def test_english_alone_may_be_written_without_its_name(tmp_path: Path) -> None:
    more = 'explanation_zh = "因为。"\nkey_points = ["a"]\nshow.focus = "x"\nshow.look = "y"\n'
    short = GOOD.replace(".en", "") + more
    [question] = load_pack(write(tmp_path, short)).questions
    assert question.question.get("en") == "Why?"
    assert question.explanation.given() == {"en": "Because.", "zh": "因为。"}
    assert question.key_points.get("zh") == ("a",)
    assert question.show is not None
    assert question.show.look.get("en") == "y"


def test_a_pack_needs_little_and_is_called_like_its_file(tmp_path: Path) -> None:
    pack = load_pack(write(tmp_path, GOOD, "week-3.toml"))
    assert pack.id == "week-3"
    assert pack.keys == ("week-3/a",)
    assert pack.questions[0].show is None


def test_packs_come_from_gradtui_the_user_and_extra_directories(tmp_path: Path, own_config: Path) -> None:
    write(own_config, GOOD, "own.toml")
    write(tmp_path / "extra", GOOD, "class.toml")
    packs, errors = load_packs([tmp_path / "extra"])
    assert [pack.id for pack in packs] == ["day15", "own", "class"]
    assert errors == []


def test_one_bad_pack_does_not_hide_the_good_ones(tmp_path: Path) -> None:
    write(tmp_path / "extra", GOOD, "a.toml")
    write(tmp_path / "extra", "title = [", "b.toml")
    write(tmp_path / "extra", GOOD + "colour = 1\n", "c.toml")
    (tmp_path / "extra" / "d.toml").mkdir()
    (tmp_path / "extra" / "e.toml").write_bytes(b"title.en = '\xff'")
    packs, errors = load_packs([tmp_path / "extra"])
    assert [pack.id for pack in packs] == ["day15", "a"]
    assert [str(error).split(":")[0].rsplit("/")[-1] for error in errors] == [
        "b.toml", "c.toml", "d.toml", "e.toml",
    ]  # fmt: skip


def test_a_second_pack_of_the_same_name_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "extra", GOOD, "day15.toml")
    packs, errors = load_packs([tmp_path / "extra"])
    assert [pack.id for pack in packs] == ["day15"]
    assert len(packs[0].questions) == 5
    shipped = bank.shipped_directory() / "day15.toml"
    assert str(errors[0]).startswith(f"{path}: the pack id 'day15' is taken by {shipped};")


def test_a_directory_given_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "extra", GOOD)
    packs, errors = load_packs([tmp_path / "extra", tmp_path / "extra" / ".." / "extra"])
    assert [pack.id for pack in packs] == ["day15", "mine"]
    assert errors == []


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    packs, errors = load_packs([tmp_path / "nowhere"])
    assert [pack.id for pack in packs] == ["day15"]
    assert [str(error) for error in errors] == [f"{tmp_path / 'nowhere'}: is not a directory"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("title = [", "is not valid TOML: "),
        (f"id = 'x'\n{GOOD}", "id = 'x' is not allowed; the id of a question pack is its file name"),
        (
            f"titel.en = 'x'\n{GOOD}",
            "titel is not a key of a question pack; allowed: title, questions (did you mean title?)",
        ),
        ("title.en = 'x'", "questions is missing"),
        ("title.en = 'x'\nquestions = []", "questions = [] is not allowed; "),
        (
            "title.en = 'x'\nquestions = 'five'",
            "questions = 'five' is not allowed; allowed is a list of tables, [[questions]]",
        ),
        ("title.en = 'x'\nquestions = ['five']", "questions[0] = 'five' is not allowed; allowed is a table"),
        (
            GOOD.replace('title.en = "Mine"', "title = 3"),
            "title = 3 is not allowed; allowed is text in quotes, or a table with some of the keys en, zh",
        ),
        (
            GOOD.replace('"Mine"', '" "'),
            "title is empty; allowed is text in at least one of title.en, title.zh",
        ),
        (
            f"{GOOD}explanation.fr = 'x'",
            "question 'a': explanation.fr is not a key of a question pack; allowed: en, zh",
        ),
        (GOOD.replace('id = "a"\n', ""), "question number 1: id is missing"),
        (GOOD.replace('"a"', '"a/b"'), "question 'a/b': id = 'a/b' is not allowed; allowed is letters, "),
        (GOOD.replace('"a"', "7"), "question number 1: id = 7 is not allowed; allowed is letters, "),
        (
            GOOD + GOOD.split("\n", 1)[1],
            "question 'a': id = 'a' is there twice; allowed is an id that no other question has",
        ),
        (
            GOOD.replace('"Because."', "3"),
            "question 'a': explanation.en = 3 is not allowed; allowed is text in quotes",
        ),
        (GOOD.replace('"Because."', '""'), "question 'a': explanation is empty; allowed is text in "),
        (f"{GOOD}note = {{}}", "question 'a': note is empty; "),
        (
            f"{GOOD}note = ['a long text {'x' * 100}']",
            f"question 'a': note.en = ['a long text {'x' * 45}… is not allowed; allowed is text in quotes",
        ),
        (
            f"{GOOD}key_points.en = 'x'",
            "question 'a': key_points.en = 'x' is not allowed; allowed is a list of texts in quotes",
        ),
        (
            f"{GOOD}key_points.en = ['x', 1]",
            "question 'a': key_points.en[1] = 1 is not allowed; allowed is text in quotes",
        ),
        (f"{GOOD}key_points.zh = ['']", "question 'a': key_points.zh has the point ''; "),
        (f"{GOOD}show.focus = 'pre-ln'", "question 'a': show.look is missing"),
        (
            f"{GOOD}show.focus = 'pre-ln'\nshow.look.en = 'x'\nshow.metric = 'act_rsm'",
            "question 'a': show.metric = 'act_rsm' is not allowed; allowed: "
            f"{', '.join(SELECTABLE)} (did you mean act_rms?)",
        ),
        (
            f"{GOOD}show.focus = 'pre-ln'\nshow.look.en = 'x'\nshow.pins = ['pre-ln']",
            "question 'a': show.pins = ['pre-ln'] is not allowed; 'pre-ln' is named twice in focus and pins",
        ),
        (
            f"{GOOD}show.focus = 'pre-ln'\nshow.look.en = 'x'\nshow.pins = 'post-ln'",
            "question 'a': show.pins = 'post-ln' is not allowed; allowed is a list of texts in quotes",
        ),
        (
            f"{GOOD}show.focus = ' '\nshow.look.en = 'x'",
            "question 'a': show = [' '] is not allowed; focus and pins are the ids of presets",
        ),
        (
            f"{GOOD}show.focsu = 'pre-ln'",
            "question 'a': show.focsu is not a key of a question pack; allowed: focus, look, pins, metric "
            "(did you mean focus?)",
        ),
    ],
)
def test_a_bad_pack_is_refused_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    assert refusal(tmp_path, text).startswith(sentence)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuizError, match=r"none\.toml: cannot be read: No such file"):
        load_pack(tmp_path / "none.toml")
