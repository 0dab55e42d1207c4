"""The game: its buttons say what the rule says, its picture is the chosen schedule, its run ends well."""

import time
from html import unescape

import pytest

import hybridlab as hl
from hybridlab.show.live.game import Game, lost, play
from hybridlab.show.paper.style import look
from hybridlab.show.timelines.picture import boxes_of, picture
from hybridlab.show.timelines.spans import BUBBLE

FIFO = "0F 0F 1F 1B 0B 1F 1B 0B"  # 1F1B of two ranks and two microbatches


def follow(game, text=FIFO):
    for word in text.split():
        game.choose(int(word[:-1]), word[-1])
    return game


def buttons(game):
    return [[(one["text"], one["why"] == "") for one in row["choices"]] for row in game.board["rows"]]


def test_only_possible_actions_are_enabled_and_the_others_say_why():
    game = play(ranks=2, microbatches=2)
    assert buttons(game) == [[("F0", True), ("B0", False)], [("F0", False), ("B0", False)]]
    assert game.board["rows"][1]["choices"][0]["why"].startswith("1F0 comes after 0F0 on rank 0")
    assert game.board["rows"][0]["choices"][0]["told"] == "0F0 on rank 0: 0 to 1"
    game.choose(0, "F")
    assert buttons(game) == [[("F1", True), ("B0", False)], [("F0", True), ("B0", False)]]
    assert game.board["rows"][1]["choices"][0]["told"] == "1F0 on rank 1: 1 to 2, after waiting 1"
    with pytest.raises(ValueError, match="0B0 comes after 1B0"):
        game.choose(0, "B")


def test_bubble_and_memory_grow_as_one_chooses():
    game = follow(play(ranks=2, microbatches=2), "0F 0F 1F")
    assert [row["held"] for row in game.board["rows"]] == [2, 1]
    assert game.board["lost"] == "1" and game.board["chosen"] == 3 and game.board["all"] == 8
    assert game.told == "1F0 on rank 1: 1 to 2, after waiting 1. Rank 1 holds 1."
    drawn = boxes_of(game.picture)
    assert sum(drawn.kind != BUBBLE) == 3 and drawn.length == 9  # the axis is as long as the game must be
    assert game.picture["timelines"][0]["peaks"] == [2, 1]


@pytest.mark.long
def test_what_is_lost_is_idle_time_that_no_later_choice_can_fill():
    game = play(ranks=3, microbatches=3)
    before = 0.0
    for word in "0F 1F 2F 2B 1B 0B 0F 1F 0F 1F 2F 2F 2B 1B 2B 1B 0B 0B".split():
        game.choose(int(word[0]), word[1])
        assert lost(game.timeline) >= before
        before = lost(game.timeline)
    idle = game.timeline.length * 3 - sum(game.timeline.busy)
    assert game.finished and before <= idle


@pytest.mark.slow
def test_the_end_compares_with_1f1b_and_the_optimum():
    game = follow(play(ranks=2, microbatches=2))
    assert game.schedule.program == hl.schedule("1f1b", ranks=2, microbatches=2).program
    assert "Finished: 9 units, idle/total 33.3%, at most 2 activations" in game.told
    assert "1F1B needs 9 units and 2 activations." in game.told
    assert "No order of F and B on these ranks is shorter than yours." in game.told
    assert [one["name"] for one in game.picture["timelines"]] == ["by hand", "1f1b", "automatic"]
    automatic = hl.simulate(hl.automatic(ranks=2, microbatches=2))
    assert f"needs {automatic.length:g} and {max(automatic.peak_live)}." in game.told


@pytest.mark.slow
def test_a_slow_game_is_told_what_would_have_been_possible():
    slow = follow(play(ranks=2, microbatches=2), "0F 1F 1B 0B 0F 1F 1B 0B")
    assert "Finished: 12 units" in slow.told and "is shorter than 9 units." in slow.told
    halves = follow(play(ranks=1, microbatches=1, split=True, limit=1), "0F 0I 0W")
    assert "No order of F, I and W on these ranks is shorter than yours." in halves.told


@pytest.mark.slow
def test_a_limit_holds_and_is_told():
    game = follow(play(ranks=2, microbatches=2, limit=1), "0F")
    assert "Activations on a rank: 1 at most." in play(ranks=2, microbatches=2, limit=1).told
    assert "may hold (1)" in game.board["rows"][0]["choices"][0]["why"]
    assert "more than the limit" in follow(game, "1F 1B 0B 0F 1F 1B 0B").told


def test_undo_and_restart():
    game = follow(play(ranks=2, microbatches=2), "0F 0F")
    game.undo()
    assert game.told == "Undid 0F1." and game.board["chosen"] == 1
    game.restart()
    assert game.board["chosen"] == 0 and game.told.startswith("You are the scheduler of 2 ranks")
    with pytest.raises(ValueError, match="there is nothing to undo"):
        game.undo()


def test_what_the_page_asks_is_done_or_refused_in_words():
    game = play(ranks=2, microbatches=2)
    game._asked(game, {"ask": "choose", "with": [0, "F"]}, [])
    assert game.board["chosen"] == 1
    game._asked(game, {"ask": "choose", "with": [0, "B"]}, [])
    assert game.board["chosen"] == 1 and "comes after" in game.told


@pytest.mark.parametrize("wrong", [{"ranks": 9}, {"microbatches": 17}, {"ranks": 0}, {"limit": 0}])
def test_impossible_games_are_refused_in_a_sentence(wrong):
    with pytest.raises(ValueError, match="|".join(wrong)):
        play(**wrong)


@pytest.mark.slow
def test_a_stored_notebook_shows_the_twin_and_the_words():
    bundle, _ = follow(play(ranks=2, microbatches=2))._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg") and "Finished: 9 units" in bundle["text/plain"]


@pytest.mark.slow
def test_before_anything_is_chosen_a_stored_notebook_shows_the_board():
    game = play(ranks=2, microbatches=2)
    text = game.twin
    assert text.count(f'fill="{look("F").fill}"') == 1 and text.count("stroke-dasharray") == 3  # rank 0 may do F0
    assert "rank 1" in text and game.board["rows"][1]["choices"][0]["why"] in unescape(text)
    game.choose(0, "F")
    assert "units" in game.twin  # an axis


def test_the_program_holds_no_rule_and_no_colour():
    assert "renderGame" in Game._esm and "#0072b2" not in Game._esm.lower()


# --- the run, with a stand-in for the ranks -----------------------------------------------------------------------


class Ranks:
    """A stand-in for `hl.run`: it tells every action, then brings home its prediction in seconds."""

    def __init__(self, fails="", slow=False):
        self.fails, self.slow = fails, slow

    def __call__(self, schedule, *, costs, steps, on_event, **more):
        if self.fails:
            raise ValueError(self.fails)
        made = hl.simulate(hl.lower(schedule), costs)
        for step in range(steps + 1):
            for span in made.spans:
                time.sleep(self.slow and 0.1)
                if span.lane == "compute":
                    begin, end = int(span.begin * 1e9), int(span.end * 1e9)
                    on_event(span.rank, {"step": step, "index": span.index, "begin": begin, "end": end})
        origin = {"kind": "measured", "latency": 0.0}
        return type(made)(made.schedule, made.ready, made.begin, made.end, made.lane, made.tick, "s", origin=origin)


def wait(game):
    end = time.monotonic() + 20
    while game.running["on"] and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.slow
def test_a_finished_game_can_be_run_and_the_measurement_lies_under_the_prediction():
    game = play(ranks=2, microbatches=2, run=Ranks())
    assert not game.running["can"]
    follow(game)
    assert game.running == {"can": True, "on": False}
    game.run()
    wait(game)
    assert game.running == {"can": True, "on": False}
    assert [one["measured"] for one in game.picture["timelines"]] == [False, True]
    assert "Measured on 2 real processes" in game.told


@pytest.mark.slow
def test_a_run_that_fails_says_so_and_the_game_goes_on():
    game = follow(play(ranks=2, microbatches=2, run=Ranks(fails="rank 1 is ill")))
    game.run()
    wait(game)
    assert game.told == "rank 1 is ill" and not game.running["on"]
    game.undo()
    assert game.board["chosen"] == 7 and not game.running["can"]


@pytest.mark.long
def test_a_run_can_be_stopped():
    game = follow(play(ranks=2, microbatches=2, run=Ranks(slow=True)))
    game.run()
    assert game.running["on"] and game.told.startswith("Running")
    game.stop()
    wait(game)
    assert game.told == "Stopped." and len(game.picture["timelines"]) == 1


@pytest.mark.long
def test_a_choice_taken_back_ends_the_run_and_what_it_tells_later_is_not_heard():
    game = follow(play(ranks=2, microbatches=2, run=Ranks(slow=True)))
    game.run()
    game.undo()
    time.sleep(0.5)
    assert game.told == "Undid 0B1." and not game.running["on"]


@pytest.mark.slow
def test_without_ranks_there_is_no_run():
    game = follow(play(ranks=2, microbatches=2))
    game.run()
    assert not game.running["can"] and game.picture["columns"] == picture(game.timeline, *_rivals())["columns"]


def _rivals():
    costs = hl.Costs()
    return [hl.simulate(hl.schedule("1f1b", 2, 2), costs), hl.simulate(hl.automatic(2, 2, costs), costs)]
