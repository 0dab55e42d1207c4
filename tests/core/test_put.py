"""Files of results: a device is never replaced, an old file stays until the new one is whole, and a link stays one."""

import os
import stat

import pytest

from hybridlab.core.files import put


def test_a_device_is_written_to_and_never_replaced(tmp_path):
    device = tmp_path / "device"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 7))  # as /dev/full: no byte fits
    except PermissionError:
        pytest.skip("only root makes a device")
    with pytest.raises(ValueError, match="cannot write .*device: No space left on device"):
        put(device, "more")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_link_stays_a_link_and_a_file_keeps_its_permissions(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    put(link, "new")
    assert link.is_symlink() and target.read_text() == "new" and stat.S_IMODE(target.stat().st_mode) == 0o640
    other = tmp_path / "other"
    other.hardlink_to(target)
    put(other, "newer")
    assert target.read_text() == "newer"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "other", "target"]


def test_the_old_file_stays_if_the_new_one_cannot_be_written_to_its_end(tmp_path):
    """No room for the second half: the first half must not be there either."""
    file = tmp_path / ("r" * 255)  # the longest name
    put(file, "old")
    with pytest.raises(UnicodeEncodeError):
        put(file, "n" * 100_000 + "\ud800")
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


def test_a_place_that_takes_no_file_is_told_in_a_sentence(tmp_path):
    put(tmp_path / "file", "")
    with pytest.raises(ValueError, match="cannot write .*/file/x: Not a directory"):
        put(tmp_path / "file" / "x", "")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ValueError, match="Too many levels of symbolic links"):
        put(tmp_path / "loop", "")
