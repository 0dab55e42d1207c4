"""The table of faults: all of the list, the ninety of the research and what an attack found, and what becomes of each.

A row's outcome is one of three. `Run`: a function that goes wrong on ranks, and what must be said about it.
`Elsewhere`: the test that holds it. `Needs`: what this machine has not. `soak` rows are left to `make soak`.
"""

from typing import NamedTuple

from faults import strikes

from hybridlab.core.where.mesh import Mesh

HERE = r"strikes\.py:\d+"
FOUR = Mesh(world=4)


class Run(NamedTuple):
    """A function of `strikes` on four ranks; kind, rank and sentence (a pattern) of the error that it must end in.

    works  the kinds of work in which the fault strikes; none: the function is the whole program
    """

    fault: object
    kind: str
    says: str
    rank: int | None = strikes.HIT
    works: tuple = ()
    hit: tuple = (strikes.HIT,)
    mesh: Mesh = FOUR
    hangs: bool = False


class Elsewhere(NamedTuple):
    """A test elsewhere: "file::function"."""

    name: str


class Needs(NamedTuple):
    """What would be needed to try it."""

    what: str


class Row(NamedTuple):
    """One fault of the list: its number, what happens, what becomes of it, and whether only `make soak` runs it."""

    number: int
    fault: str
    outcome: Run | Elsewhere | Needs
    soak: bool = False


EVERY = tuple(strikes.WORK)
ONE = EVERY[:1]
GPU = Needs("a GPU")
KILLED = f"^rank 2 was killed by {{}} before giving a result, (in|after) \\w+ .* at {HERE}"


def raised(what, fault=strikes.raise_error, works=EVERY):
    return Run(fault, what.partition(":")[0], rf"^rank 2 failed: {what}.* \({HERE}\)", works=works)


def left_by_exit(fault, code):
    return Run(fault, "SystemExit", rf"^rank 2 called sys.exit\({code}\) .* \({HERE}\)", works=ONE)


def killed(fault, name, works=ONE):
    return Run(fault, name, KILLED.format(name), works=works)


def hangs(fault, state, works=ONE):
    says = rf"^no progress for 1 s: .*ranks? .* in \w+ .* at {HERE}.*; .*rank 2 is {state}"
    return Run(fault, "hang", says, works=works, hangs=True)


def differs(fault, odd):
    says = f"^the ranks do not call the same: rank 2 calls {odd}.* at {HERE}; ranks 0, 1, 3 call"
    return Run(fault, "mismatch", says)


def unfit(fault, sent, room):
    return Run(fault, "mismatch", f"^rank 0's send of {sent} .* does not fit rank 1's recv of {room}", rank=0)


def deadlock(fault, says, **how):
    return Run(fault, "deadlock", f"^deadlock: rank 0 {says}", rank=0, **how)


def ranks(name):
    return Elsewhere(f"world/test_ranks.py::{name}")


def here(name):
    return Elsewhere(f"world/test_faults.py::{name}")


def saving(name):
    return Elsewhere(f"training/test_checkpoint.py::{name}")


ROWS = [
    Row(1, "raise in forward", raised("ValueError: a wrong shape")),
    Row(2, "raise in a backward hook", raised("ValueError: a wrong shape", works=("tensor parallel",))),
    Row(3, "raise in the optimizer", raised("ValueError: a wrong shape", strikes.optimizer_error, ONE)),
    Row(
        4,
        "all ranks raise the same",
        Run(strikes.raise_error, "ValueError", rf"^all 4 ranks failed: ValueError: a wrong shape \({HERE}\)", 0),
    ),
    Row(
        5,
        "two ranks raise differently",
        Run(
            strikes.raise_by_rank,
            "ValueError",
            rf"^rank 1 failed: ValueError: on one \({HERE}\), then rank 3 failed: KeyError: .* \({HERE}\)",
            rank=1,
            works=ONE,
            hit=(1, 3),
        ),
    ),
    Row(6, "MemoryError", raised("MemoryError", strikes.no_room)),
    Row(7, "killed by the system for want of memory", here("test_a_rank_killed_for_memory_is_told_so")),
    Row(8, "CUDA out of memory", GPU),
    Row(9, "kill -9", killed(strikes.kill, "SIGKILL", EVERY)),
    Row(10, "segmentation fault", killed(strikes.segfault, "SIGSEGV")),
    Row(11, "abort", killed(strikes.abort, "SIGABRT")),
    Row(12, "sys.exit(0) in the middle", left_by_exit(strikes.leave_quietly, 0)),
    Row(13, "sys.exit(3)", left_by_exit(strikes.leave_with_three, 3), soak=True),
    Row(
        14,
        "os._exit(0)",
        Run(strikes.vanish, "exit", rf"^rank 2 ended with exit code 0 .*, after \w+ .* at {HERE}", works=ONE),
    ),
    Row(15, "SIGSTOP", hangs(strikes.stop, r"stopped .*, after \w+ ", EVERY)),
    Row(16, "sleep", hangs(strikes.sleep, f"at work in sleep at {HERE}, after"), soak=True),
    Row(17, "a loop in Python", hangs(strikes.spin, f"at work in spin at {HERE}, after")),
    Row(18, "a loop in C that keeps Python's lock", hangs(strikes.hold_the_lock, f"unresponsive .* at {HERE}")),
    Row(19, "input()", raised("EOFError: a rank has no keyboard", strikes.ask, ONE)),
    Row(20, "breakpoint()", raised("RuntimeError: a debugger cannot reach a rank", strikes.debug, ONE)),
    Row(
        21,
        "two ranks receive from each other",
        deadlock(
            strikes.both_receive,
            f"waits in recv .* from rank 1, tag 0, at {HERE}, rank 1 waits in recv .* at {HERE}",
        ),
    ),
    Row(
        22,
        "a ring of three ranks that receive",
        deadlock(strikes.ring_of_receives, ".*, rank 1 .*, rank 2 waits in recv"),
    ),
    Row(
        23,
        "two ranks send each other large messages",
        deadlock(strikes.both_send, "waits in send .*, rank 1 waits in send"),
    ),
    Row(
        24,
        "a wrong tag",
        Run(
            strikes.wrong_tag,
            "tag",
            f"^rank 0 waits in send .* to rank 1, tag 1, at {HERE}; rank 1 has another tag, in recv .*, tag 2, at",
            rank=0,
        ),
    ),
    Row(25, "a wrong peer", ranks("test_impossible_operations_are_refused_before_anything_is_sent")),
    Row(26, "a message shorter than its room", unfit(strikes.message_too_short, r"\(8,\)", r"\(16,\)")),
    Row(27, "a message longer than its room", unfit(strikes.message_too_long, r"\(16,\)", r"\(8,\)")),
    Row(
        28,
        "another dtype, in a message and in a meeting",
        unfit(strikes.message_dtype, ".* float32", ".* int32"),
    ),
    Row(29, "another collective", differs(strikes.other_collective, "all_gather")),
    Row(30, "another shape, large", differs(strikes.shape_large, r"all_reduce #1 of \(524288,\)")),
    Row(31, "another shape, small", differs(strikes.shape_small, r"all_reduce #1 of \(4,\)")),
    Row(32, "another reduction", differs(strikes.other_reduction, "all_reduce #1 of .* float32, max")),
    Row(33, "another root", differs(strikes.other_root, "broadcast .*, from rank 1")),
    Row(
        34,
        "two collectives in the other order",
        Run(strikes.other_order, "order", f"^rank 2 calls all_reduce #1 at {HERE} and #2 at {HERE}, rank 0 first at"),
    ),
    Row(
        35,
        "one rank alone calls a collective",
        Run(strikes.one_skips, "left", f"^rank 1 has finished, and rank 0 waits in all_reduce #1 .* at {HERE}", rank=1),
    ),
    Row(
        36,
        "one step more on one rank",
        Run(strikes.one_step_more, "left", "^rank 0 has finished, and rank 2 waits in all_reduce #4 .* without it", 0),
    ),
    Row(
        37,
        "uneven batches",
        Run(strikes.uneven_batches, "left", "^rank 2 has finished, and ranks 0, 1 wait in all_reduce #3 .* without it"),
        soak=True,
    ),
    Row(38, "an empty tensor on one rank", differs(strikes.empty_tensor, r"all_reduce #1 of \(0,\)"), soak=True),
    Row(39, "a tensor that is not contiguous", ranks("test_tensors_in_several_pieces_work_in_place")),
    Row(40, "a CUDA tensor sent through gloo", GPU),
    Row(
        41,
        "NaN on one rank",
        Elsewhere("training/test_nan.py::test_the_rank_the_step_and_the_tensor_are_named_and_what_was_saved_stays"),
    ),
    Row(42, "a tensor changed before its message has left", here("test_a_tensor_changed_on_the_way_is_told")),
    Row(
        43,
        "a group opened on some ranks only",
        Run(strikes.group_on_some, "mismatch", "^the ranks do not call the same: rank 2 calls barrier .* call open #1"),
    ),
    Row(44, "two groups in two orders", deadlock(strikes.two_groups_in_two_orders, ".*; each", mesh=Mesh(dp=2, pp=2))),
    Row(45, "the port is taken", ranks("test_ranks_and_zygote_listen_on_loopback_only")),
    Row(46, "a store is left over from a crash", ranks("test_the_folder_where_ranks_meet_is_private_and_goes")),
    Row(47, "an import fails on one rank", here("test_an_import_that_fails_on_one_rank")),
    Row(48, "a rank fails before the others are met", here("test_a_rank_that_fails_before_the_meeting")),
    Row(49, "interrupt", ranks("test_an_interrupt_ends_the_ranks_and_the_next_run_works")),
    Row(50, "two interrupts", here("test_two_interrupts")),
    Row(51, "the kernel is restarted", here("test_a_restarted_kernel_leaves_nothing"), soak=True),
    Row(52, "the kernel is killed", ranks("test_a_killed_driver_leaves_nothing")),
    Row(53, "the server is killed", here("test_a_kernel_without_its_server_leaves_nothing"), soak=True),
    Row(54, "the browser is closed and opened again", Needs("a browser")),
    Row(55, "the kernel dies while ranks start", here("test_a_kernel_that_dies_while_ranks_start"), soak=True),
    Row(56, "ranks started in a thread that ends", ranks("test_ranks_started_in_a_thread_outlive_it")),
    Row(57, "children of ranks", ranks("test_what_a_rank_has_started_goes_with_it")),
    Row(58, "a second run meanwhile", ranks("test_a_second_run_meanwhile_is_refused")),
    Row(59, "32 and 64 ranks on few cores", here("test_many_ranks_finish"), soak=True),
    Row(60, "one rank", ranks("test_alone_on_an_axis_every_call_returns_at_once_and_is_not_counted")),
    Row(61, "sizes that cannot be divided", ranks("test_impossible_operations_are_refused_before_anything_is_sent")),
    Row(
        62,
        "ranks and axes that do not fit",
        Elsewhere("cli/test_cli.py::test_bad_input_ends_in_one_sentence_and_exit_code_2"),
    ),
    Row(63, "more ranks than layers", here("test_more_stages_than_layers_are_refused")),
    Row(64, "fewer microbatches than stages", Elsewhere("training/test_check.py::test_fewer_microbatches_than_stages")),
    Row(65, "one sequence of one token, width one", here("test_the_smallest_tensors"), soak=True),
    Row(66, "no GPU, but asked for", Elsewhere("world/test_placement.py::test_impossible_backends_are_refused")),
    Row(
        67,
        "fewer GPUs than ranks",
        Elsewhere("world/test_placement.py::test_ranks_share_gpus_in_turn_and_say_that_times_are_not_speed_ups"),
    ),
    Row(68, "a GPU is lost", GPU),
    Row(69, "the disk is full while saving", saving("test_a_full_disk_leaves_the_checkpoint_before")),
    Row(70, "killed while saving", saving("test_killed_at_any_moment_there_is_always_a_whole_checkpoint")),
    Row(71, "a checkpoint of another layout", saving("test_eight_real_ranks_save_and_others_load")),
    Row(72, "a checkpoint of a different model", saving("test_another_model_is_refused_by_parameter")),
    Row(73, "a damaged checkpoint", saving("test_a_damaged_file_is_refused_by_name_on_however_many_ranks")),
    Row(74, "a pickle that runs code", Elsewhere("world/test_frames.py::test_anything_else_is_refused_by_name")),
    Row(75, "no place to write", here("test_without_a_place_to_write")),
    Row(76, "locale C and a path that is not ASCII", here("test_locale_c_and_another_alphabet")),
    Row(77, "fork after threads", ranks("test_the_zygote_has_one_thread_and_ranks_compute_with_one")),
    Row(78, "a flood of printing", here("test_a_flood_is_cut")),
    Row(79, "a gigabyte of printing", here("test_a_gigabyte_is_cut"), soak=True),
    Row(80, "output in other alphabets, colours and markup", here("test_output_is_text")),
    Row(81, "the clock jumps", here("test_no_time_of_day_decides")),
    Row(82, "the machine sleeps", here("test_a_sleeping_machine_is_no_hang")),
    Row(83, "a function is defined again", here("test_a_function_defined_again_is_the_new_one")),
    Row(84, "a closure that cannot travel", here("test_a_closure_that_cannot_travel_names_its_variable")),
    Row(85, "a huge closure", here("test_a_huge_closure_is_told_with_its_size")),
    Row(86, "a name that is not defined yet", raised("NameError", strikes.name_error, ONE)),
    Row(87, "the oldest and the newest torch", Needs("other versions of torch")),
    Row(88, "no network", here("test_without_a_network"), soak=True),
    Row(
        89,
        "another user attacks the port",
        Elsewhere("world/test_neighbours.py::test_another_user_at_every_listener_changes_nothing_and_reads_nothing"),
        soak=True,
    ),
    Row(90, "fifty runs, one in ten at fault", here("test_many_runs_of_which_some_fail_leave_nothing"), soak=True),
    Row(
        91,
        "the last rank dies too",
        Elsewhere("world/test_edges.py::test_when_the_last_rank_dies_too_its_folder_may_go_meanwhile"),
    ),
    Row(
        92,
        "a rank is killed while its parent imports",
        Elsewhere("world/test_edges.py::test_a_rank_killed_while_its_parent_imports_is_the_one_that_is_blamed"),
    ),
    Row(
        93,
        "a pid has gone to another process",
        Elsewhere("world/test_edges.py::test_a_number_that_another_process_has_meanwhile_is_not_killed"),
    ),
    Row(
        94,
        "a forged value",
        Elsewhere("world/test_edges.py::test_a_forged_value_is_refused_before_its_memory_is_looked_at"),
    ),
    Row(95, "a garbled wire", Elsewhere("world/test_edges.py::test_a_rank_that_garbles_the_wire_is_named")),
    Row(
        96,
        "a forked child returns",
        Elsewhere("world/test_edges.py::test_a_forked_child_that_returns_says_nothing_for_its_rank"),
    ),
    Row(
        97,
        "a progress bar of a million steps",
        Elsewhere("world/test_edges.py::test_a_progress_bar_of_a_million_steps_takes_as_long_as_its_letters"),
    ),
    Row(98, "floods past Python", Elsewhere("world/test_edges.py::test_floods_past_python_are_cut")),
    Row(99, "an exception of 200 MB", Elsewhere("world/test_edges.py::test_a_long_exception_is_shortened")),
    Row(100, "daemons of ranks", Elsewhere("world/test_edges.py::test_whatever_a_rank_has_started_goes_with_it")),
    Row(
        101,
        "the driver is killed while it starts",
        Elsewhere("world/test_edges.py::test_a_driver_killed_while_it_starts_leaves_no_folder"),
    ),
    Row(
        102,
        "optimised Python, foreign variables, small limits",
        Elsewhere("world/test_edges.py::test_ranks_run_in_any_surroundings"),
    ),
    Row(
        103,
        "no shared memory, no room on disk",
        Elsewhere("world/test_edges.py::test_ranks_run_without_shared_memory_and_with_a_full_temporary_folder"),
    ),
    Row(
        104,
        "a death in plain torch.distributed",
        Elsewhere("world/test_edges.py::test_who_died_in_plain_torch_is_named_with_its_place"),
    ),
    Row(
        105,
        "a hang in plain torch.distributed",
        Elsewhere("world/test_edges.py::test_who_waits_for_whom_in_plain_torch_is_told_with_the_line"),
    ),
    Row(106, "Ctrl-C in a command", Elsewhere("world/test_edges.py::test_an_interrupt_ends_a_command_in_one_line")),
    Row(107, "SIGTERM while training", Elsewhere("world/test_edges.py::test_sigterm_saves_what_was_trained")),
    Row(
        108,
        "numbers that nothing can serve",
        Elsewhere("cli/test_bad_lines.py::test_hundreds_of_bad_lines_end_in_one_sentence"),
    ),
    Row(
        109,
        "hostile submissions",
        Elsewhere("labs/test_hostile.py::test_hostile_submissions_change_nothing_but_their_own_row"),
    ),
    Row(
        110,
        "the kernel is killed while the parent of its ranks imports",
        Elsewhere("world/test_edges.py::test_a_parent_of_ranks_leaves_while_it_imports_when_its_kernel_has_ended"),
    ),
]
