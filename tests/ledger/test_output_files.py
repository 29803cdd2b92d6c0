"""Outputs at paths that users choose: checked, written, and redirected by no other account."""

import errno
import os
import stat
import subprocess
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from other_accounts import STRANGER, USER, other_account
from vicinal.errors import InvalidInput, OutputFailed
from vicinal.ledger.output_files import check_output, write_output

pytestmark = pytest.mark.quick

FULL = Path("/dev/full")
MAX_LINKS = 40  # as Linux follows
OPEN_FILES = Path("/proc/self/fd")
needs_open_files = pytest.mark.skipif(
    not OPEN_FILES.is_dir(), reason="the system has no links to open files"
)


def list_open_files():
    return sorted(path.name for path in OPEN_FILES.iterdir())


def replace_output(path, content="new"):
    """Check an output as before the work of a command, and write it as after the work."""
    check_output(path)
    write_output(path, content.encode())


def refuse_output(path, match):
    """Check that neither the check nor the writing accepts `path`."""
    with pytest.raises(InvalidInput, match=match):
        check_output(path)
    with pytest.raises(OutputFailed, match=match):
        write_output(path, b"new")


# Only root makes files of other accounts.


def make_file(path, owner, mode=0o666, content=""):
    path.write_text(content)
    path.chmod(mode)
    os.chown(path, owner, owner)


def make_folder(path, owner, mode=0o777):
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    os.chown(path, owner, owner)


def make_pipe(path, owner, mode=0o666):
    os.mkfifo(path)
    path.chmod(mode)
    os.chown(path, owner, owner)


def make_link(path, target, owner):
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)


@pytest.mark.parametrize("make", [make_file, make_pipe])
def test_a_file_or_pipe_that_only_its_owner_may_write_is_refused_unopened(shared_folder, make):
    shared_folder.chmod(0o777)
    make(shared_folder / "out", 0, 0o644)
    with other_account(), pytest.raises(InvalidInput, match="Permission denied"):
        check_output(shared_folder / "out")


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
def test_a_device_is_checked_and_written(unprivileged):
    replace_output(Path(os.devnull))
    assert Path(os.devnull).is_char_device()
    (unprivileged / "full.csv").symlink_to(FULL)
    with pytest.raises(InvalidInput, match="No space left"):
        check_output(unprivileged / "full.csv")


@pytest.mark.parametrize(
    ("n_blocks", "n_free_bytes", "is_full"),
    [(0, 0, False), (1, 0, True), (1, (1 << 16) - 1, True), (1, 1 << 16, False)],
)
def test_a_disk_with_less_than_64_kib_is_full_unless_it_has_no_size(
    tmp_path, n_blocks, n_free_bytes, is_full, monkeypatch
):
    disk = SimpleNamespace(f_blocks=n_blocks, f_bavail=n_free_bytes, f_frsize=1)
    monkeypatch.setattr(os, "fstatvfs", lambda _: disk)
    (tmp_path / "out").touch()
    with pytest.raises(InvalidInput, match="No space left") if is_full else nullcontext():
        check_output(tmp_path / "out")


def test_a_link_keeps_its_target(tmp_path, monkeypatch):
    """The target may be on another disk, so the temporary file must be in its folder."""
    (tmp_path / "data").mkdir()
    temporary_files = []
    monkeypatch.setattr(os, "fsync", lambda _: temporary_files.extend(tmp_path.glob(".vicinal*")))
    link = tmp_path / "out.csv"
    link.symlink_to("data/target.csv")
    for content in ("first", "second"):
        replace_output(link, content)
        assert link.is_symlink()
        assert (tmp_path / "data" / "target.csv").read_text() == content
    assert not temporary_files


def test_a_mounted_file_is_written_in_place(tmp_path):
    """As with docker's option -v of a single file: it cannot be replaced, but written."""
    source, mounted = tmp_path / "source.csv", tmp_path / "mounted.csv"
    source.write_text("a longer earlier text")
    mounted.touch()
    command = ["mount", "--bind", source, mounted]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root mounts files")
    try:
        replace_output(mounted)
    finally:
        subprocess.run(["umount", mounted], check=True)
    assert source.read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"source.csv", "mounted.csv"}


def test_an_append_only_file_is_refused_before_the_charge(tmp_path):
    path = tmp_path / "out.csv"
    path.touch()
    if subprocess.run(["chattr", "+a", path], capture_output=True, check=False).returncode:
        pytest.skip("the file system has no append-only files")
    try:
        with pytest.raises(InvalidInput, match="cannot be written: Operation not permitted"):
            check_output(path)
    finally:
        subprocess.run(["chattr", "-a", path], check=True)


@pytest.mark.parametrize("mode", [0o555, 0o1777])
def test_a_writable_file_in_a_folder_of_others_is_written_in_place(
    shared_folder, mode, monkeypatch
):
    """The folder takes no new file, or lets only the owner replace the file, as /tmp does.

    In /tmp, Linux may refuse to open a file of others with O_CREAT (fs.protected_regular).
    """
    folder = shared_folder / "folder"
    make_folder(folder, 0, mode)
    make_file(folder / "out.csv", 0, content="earlier")
    real_open = os.open
    flags_used = []

    def record_open(path, flags, *arguments, **options):
        if os.fspath(path).endswith("out.csv"):
            flags_used.append(flags)
        return real_open(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", record_open)
    with other_account():
        replace_output(folder / "out.csv")
    assert len(flags_used) == 2
    assert not any(flags & os.O_CREAT for flags in flags_used)
    assert (folder / "out.csv").read_text() == "new"
    assert (folder / "out.csv").stat().st_uid == 0
    assert len(list(folder.iterdir())) == 1


def test_a_new_file_is_private_and_on_disk_before_it_replaces_the_earlier_one(
    tmp_path, monkeypatch
):
    """The earlier file keeps its owner and mode, and the folder is synchronised last."""
    path = tmp_path / "out.csv"
    path.write_text("earlier")
    path.chmod(0o640)
    owner = (1234, 1235) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    real_fsync = os.fsync
    events = []

    def record_sync(descriptor):
        mode = os.fstat(descriptor).st_mode
        new_contents = [new.read_text() for new in tmp_path.glob(".vicinal*.new")]
        kind = "folder" if stat.S_ISDIR(mode) else mode & 0o777
        events.append((kind, new_contents, path.read_text()))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_sync)
    write_output(path, b"new")
    assert events == [(0o600, ["new"], "earlier"), ("folder", [], "new")]
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (*owner, 0o640)


@pytest.mark.parametrize("swapped", ["new file", "target"])
def test_no_name_that_is_exchanged_redirects_an_output(tmp_path, monkeypatch, swapped):
    """The owner of the folder puts a link in place of a name while the output is written."""
    victim = tmp_path / "victim"
    victim.write_text("secret")
    victim.chmod(0o600)
    folder = tmp_path / "folder"
    folder.mkdir()
    out = folder / "out.csv"
    out.write_text("earlier")
    out.chmod(0o644)
    real_fsync = os.fsync

    def swap(descriptor):
        real_fsync(descriptor)
        for path in folder.glob(".vicinal*") if swapped == "new file" else [out]:
            path.rename(folder / "moved")
            path.symlink_to(victim)

    monkeypatch.setattr(os, "fsync", swap)
    with suppress(OutputFailed):
        write_output(out, b"new")
    assert victim.read_text() == "secret"
    assert victim.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("make", [make_file, make_pipe])
def test_nothing_that_an_account_planted_takes_an_output_of_root(shared_folder, make):
    make_folder(shared_folder / "folder", 0, 0o1777)
    make(shared_folder / "folder" / "out.csv", USER)
    refuse_output(shared_folder / "folder" / "out.csv", "another account")


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0, 0o666)])
def test_a_new_file_has_the_permissions_of_the_umask(tmp_path, umask, mode):
    previous = os.umask(umask)
    try:
        replace_output(tmp_path / "out.csv")
    finally:
        os.umask(previous)
    assert (tmp_path / "out.csv").stat().st_mode & 0o777 == mode


def test_programs_with_one_process_id_share_a_folder(tmp_path, monkeypatch):
    """As two containers with one volume do. Fails if temporary files are named by process id."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    real_fsync = os.fsync

    def check_other_output(descriptor):
        monkeypatch.setattr(os, "fsync", real_fsync)
        check_output(tmp_path / "other.csv")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", check_other_output)
    (tmp_path / ".vicinal-7.new").write_text("remains of a program that was killed")
    replace_output(tmp_path / "out.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"out.csv", ".vicinal-7.new"}


@pytest.fixture
def folders(shared_folder):
    """Return a folder to which all accounts may write, and a private one with a file `out`."""
    public = shared_folder / "public"
    make_folder(public, 0, 0o1777)
    own = shared_folder / "own"
    make_folder(own, USER, 0o700)
    make_file(own / "out", USER, 0o644, "precious")
    return public, own


@pytest.mark.parametrize("owner", [0, USER, STRANGER])
@pytest.mark.parametrize("linked", ["file", "folder", "new file", "pipe"])
@pytest.mark.parametrize(("n_own_links", "folder_owner"), [(0, 0), (0, STRANGER), (1, 0), (2, 0)])
def test_a_link_of_another_account_is_found_behind_own_links(
    folders, owner, linked, n_own_links, folder_owner
):
    """Also if that account owns the folder of the link."""
    public, own = folders
    os.chown(public, folder_owner, folder_owner)
    make_link(public / "link", own if linked == "folder" else own / "out", owner)
    if linked in ("new file", "pipe"):
        (own / "out").unlink()
    if linked == "pipe":
        make_pipe(own / "out", USER, 0o600)
    path = public / "link"
    for number in range(n_own_links):
        make_link(own / f"link{number}", path, USER)
        path = own / f"link{number}"
    if linked == "folder":
        path /= "out"
    with other_account():
        if owner == STRANGER:
            refuse_output(path, "a link of another account redirects it")
        elif linked == "pipe":
            check_output(path)
        else:
            replace_output(path)
    if linked == "pipe":
        return
    expected = {"out": "precious" if owner == STRANGER else "new"}
    if linked == "new file" and owner == STRANGER:
        expected = {}
    assert {p.name: p.read_text() for p in own.iterdir() if not p.is_symlink()} == expected


def exchange_after(monkeypatch, function, name, exchange):
    """Call `exchange` as root after the first call of a function of `os` for the file `name`."""
    real_function = getattr(os, function)
    pending = [exchange]

    def call(path, *arguments, **options):
        result = real_function(path, *arguments, **options)
        if path == name and pending:
            user = os.geteuid()
            os.seteuid(0)
            pending.pop()()
            os.seteuid(user)
        return result

    monkeypatch.setattr(os, function, call)


@pytest.mark.parametrize(
    ("has_descriptors", "moment", "expected"),
    [
        (True, "stat", "a link of another account"),
        (True, "open", None),
        (False, "stat", "exchanged"),
        (False, "readlink", "exchanged"),
        (False, "", None),
    ],
)
def test_a_link_that_is_exchanged_during_the_walk_is_not_followed(
    folders, has_descriptors, moment, expected, monkeypatch
):
    """Another account replaces an own link in a folder to which all accounts may write.

    On macOS, the path in a link cannot be read by a descriptor. Without one, an exchange is
    noticed afterwards. `expected`: the error, or None if the own link is followed.
    """
    public, own = folders
    public.chmod(0o777)
    if not has_descriptors:
        monkeypatch.delattr(os, "O_PATH", raising=False)
    make_link(public / "link", own / "new", USER)
    make_link(public / "planted", own / "out", STRANGER)
    if moment:
        exchange_after(
            monkeypatch, moment, "link", lambda: (public / "planted").rename(public / "link")
        )
    refusal = pytest.raises(OutputFailed, match=expected) if expected else nullcontext()
    with other_account(), refusal:
        write_output(public / "link", b"new")
    assert (public / "planted").is_symlink() == (not moment), "the link was not exchanged"
    assert (own / "out").read_text() == "precious"
    assert (own / "new").exists() == (expected is None)


@pytest.mark.parametrize("owner", [0, USER, STRANGER])
@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777])
def test_a_folder_that_another_account_made_where_all_may_is_refused(folders, mode, owner):
    public, _ = folders
    public.chmod(mode)
    make_folder(public / "folder", owner)
    path = public / "folder" / "out"
    with other_account():
        if owner == STRANGER and mode != 0o755:
            refuse_output(path, "a folder on the way belongs to another account")
        else:
            replace_output(path)
    assert path.exists() == (owner != STRANGER or mode == 0o755)


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777])
def test_a_folder_of_another_account_is_accepted_where_it_shares_it(folders, mode):
    """Such as the folder of a project in the home of a colleague, or in that of a group."""
    public, _ = folders
    make_folder(public, STRANGER, mode)
    make_folder(public / "project", STRANGER)
    with other_account():
        replace_output(public / "project" / "out")
    make_folder(public, 0, 0o775)
    with other_account():
        replace_output(public / "project" / "out", "newer")
    assert (public / "project" / "out").read_text() == "newer"


@pytest.mark.parametrize("make", [make_file, make_pipe])
@pytest.mark.parametrize("folder_owner", [0, USER, STRANGER])
@pytest.mark.parametrize("mode", [0o755, 0o775, 0o757])
@pytest.mark.parametrize("owner", [0, USER, STRANGER, STRANGER - 1])
def test_a_file_belongs_to_this_user_or_root_or_the_owner_of_its_folder(
    shared_folder, owner, mode, folder_owner, make
):
    """A file of another account is also accepted where only this user or root can put it."""
    path = shared_folder / "folder" / "out"
    make_folder(path.parent, folder_owner, mode)
    make(path, owner)
    is_closed = mode == 0o755 and folder_owner != STRANGER
    with other_account():
        if is_closed or owner in (0, USER, folder_owner):
            check_output(path)
        else:
            refuse_output(path, "it belongs to another account")


def test_a_folder_that_is_exchanged_for_a_link_is_not_entered(folders, monkeypatch):
    public, own = folders
    public.chmod(0o777)
    make_folder(public / "folder", USER)
    make_link(public / "planted", own, STRANGER)

    def exchange():
        (public / "folder").rmdir()
        (public / "planted").rename(public / "folder")

    exchange_after(monkeypatch, "stat", "folder", exchange)
    with other_account(), pytest.raises(OutputFailed):
        write_output(public / "folder" / "out", b"new")
    assert (own / "out").read_text() == "precious"


@needs_open_files
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("file", "it belongs to another account"),
        ("own file", "it was exchanged for another file"),
        ("link", "Too many levels of symbolic links"),
    ],
)
def test_a_file_that_is_exchanged_before_it_is_written_in_place_is_refused(
    folders, kind, reason, monkeypatch
):
    earlier_open_files = list_open_files()
    public, own = folders
    public.chmod(0o777)
    make_file(public / "out", USER)
    if kind == "link":
        make_link(public / "planted", own / "out", STRANGER)
    else:
        make_file(public / "planted", STRANGER if kind == "file" else USER)

    def refuse(_source, target, **_folders):
        os.seteuid(0)
        (public / "planted").rename(public / target)
        os.seteuid(USER)
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "replace", refuse)
    with other_account(), pytest.raises(OutputFailed, match=reason):
        write_output(public / "out", b"secret")
    assert list_open_files() == earlier_open_files
    assert (public / "out").read_text() == ("precious" if kind == "link" else "")


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o757, 0o1777])
@pytest.mark.parametrize("folder_owner", [0, USER, STRANGER])
def test_no_name_that_another_account_gave_to_an_own_file_takes_an_output(
    folders, folder_owner, mode
):
    """As some systems allow. In a folder that takes no new file, the own file was overwritten."""
    public, own = folders
    os.link(own / "out", public / "out")
    make_folder(public, folder_owner, mode)
    with other_account():
        if folder_owner == STRANGER or mode & 0o002:
            refuse_output(public / "out", "it has another name")
        else:
            replace_output(public / "out")
            (own / "out").write_text("precious")
        os.link(own / "out", own / "own name")
        replace_output(own / "own name")
    assert (own / "out").read_text() == "precious"


@needs_open_files
@pytest.mark.parametrize("is_planted", [False, True])
def test_an_open_file_that_another_account_moves_redirects_no_output(
    folders, is_planted, monkeypatch
):
    """Standard output was a file in a folder to which all may write, and was moved to theirs."""
    public, own = folders
    make_folder(public, STRANGER, 0o755)
    descriptor = os.open(own / "out", os.O_RDWR)
    (own / "out").rename(public / "moved")

    def exchange():
        (public / "moved").rename(public / "kept")
        if is_planted:
            make_file(public / "moved", STRANGER)

    path = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    exchange_after(monkeypatch, "readlink", "", exchange)
    try:
        with other_account(), pytest.raises(OutputFailed, match="the open file was moved"):
            write_output(path, b"private")
    finally:
        os.close(descriptor)
    assert not is_planted or not (public / "moved").read_text()
    assert (public / "kept").read_text() == "precious"


@needs_open_files
def test_an_open_file_whose_name_was_removed_creates_no_other_file(unprivileged):
    """Its link has the text "out (deleted)", although the file has a second name."""
    descriptor = os.open(unprivileged / "out", os.O_RDWR | os.O_CREAT)
    os.link(unprivileged / "out", unprivileged / "second")
    (unprivileged / "out").unlink()
    try:
        refuse_output(OPEN_FILES / str(descriptor), "the open file was moved or removed")
    finally:
        os.close(descriptor)
    assert [path.name for path in unprivileged.iterdir()] == ["second"]


def test_new_content_gets_no_right_to_run_as_its_owner(tmp_path):
    (tmp_path / "out").touch()
    (tmp_path / "out").chmod(0o6777)
    replace_output(tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777


def test_a_parent_folder_is_that_by_which_the_path_led(folders, monkeypatch):
    """The folder is moved during the walk: then ``..`` of the system is another folder."""
    public, own = folders
    (own / "folder").mkdir()
    exchange_after(
        monkeypatch, "open", "folder", lambda: (own / "folder").rename(public / "folder")
    )
    with other_account():
        write_output(own / "folder" / ".." / "out", b"new")
    assert (public / "folder").exists(), "the folder was not moved"
    assert (own / "out").read_text() == "new"
    assert not (public / "out").exists()


def test_paths_lead_where_those_of_the_system_lead(unprivileged, monkeypatch):
    """Relative paths, ``..``, ``.`` and links, each compared with what the system opens."""
    monkeypatch.chdir(unprivileged)
    (unprivileged / "a" / "b").mkdir(parents=True)
    (unprivileged / "near").symlink_to("a/./b/")
    (unprivileged / "a" / "b" / "up").symlink_to("../../a//c")
    (unprivileged / "a" / "root").symlink_to(unprivileged)
    (unprivileged / "a" / "far").symlink_to("/../.." + str(unprivileged / "a" / "b" / "file"))
    for number, path in enumerate(
        [
            "x", "a/x", "near/x", "near/../x", "a/b/../x", "near/up", "a/root/near/../../x",
            "a/far", f"/../../{unprivileged}/y", f"//{unprivileged}/z",
        ]
    ):  # fmt: skip
        content = f"content {number}"
        replace_output(Path(path), content)
        assert Path(path).read_text() == content
    assert (unprivileged / "a" / "c").read_text() == "content 5"
    assert (unprivileged / "a" / "b" / "file").read_text() == "content 7"


@pytest.mark.parametrize("path", ["/", ".", "folder", "folder/..", "to_folder", "/proc/self"])
def test_a_folder_is_no_output(unprivileged, monkeypatch, path):
    monkeypatch.chdir(unprivileged)
    (unprivileged / "folder").mkdir()
    (unprivileged / "to_folder").symlink_to("folder/")
    refuse_output(Path(path), "Is a directory")


def test_an_unusable_path_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for path, reason in (
        ("a" * 300, "File name too long"),
        ("missing/out", "No such file or directory"),
        ("file/out", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
        ("loop/out", "Too many levels of symbolic links"),
    ):
        refuse_output(tmp_path / path, f"cannot be written: {reason}.")


@pytest.mark.parametrize("n_links", [MAX_LINKS, MAX_LINKS + 1])
def test_as_many_links_are_followed_as_by_the_system(tmp_path, n_links):
    (tmp_path / "link0").touch()
    for number in range(1, n_links + 1):
        (tmp_path / f"link{number}").symlink_to(f"link{number - 1}")
    path = tmp_path / f"link{n_links}"
    if n_links == MAX_LINKS:
        replace_output(path)
        assert path.read_text() == "new"
    else:
        with pytest.raises(OSError, match="Too many levels"):
            path.read_text()
        refuse_output(path, "Too many levels of symbolic links")


@needs_open_files
@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "removed file", "memory", "device", "file"])
def test_a_link_of_the_system_to_an_open_file_is_followed(unprivileged, kind, is_linked):
    """As /dev/stdout is: the text of such a link is no path, except for a file with a name."""
    read_end = None
    if kind == "pipe":
        read_end, descriptor = os.pipe()
    elif kind == "memory":
        descriptor = os.memfd_create("output")
    else:
        path = Path(os.devnull) if kind == "device" else unprivileged / "out"
        descriptor = os.open(path, os.O_RDWR | (0 if kind == "device" else os.O_CREAT), 0o600)
    try:
        if kind == "removed file":
            (unprivileged / "out").unlink()
        if kind in ("removed file", "memory"):
            os.write(descriptor, b"a longer earlier text")
        output = OPEN_FILES / str(descriptor)
        if is_linked:
            (unprivileged / "link").symlink_to(output)
            output = unprivileged / "link"
        replace_output(output)
        if kind == "pipe":
            assert os.read(read_end, 100) == b"new"
        elif kind == "file":
            assert (unprivileged / "out").read_text() == "new"
            assert os.fstat(descriptor).st_nlink == 0, "the named file was not replaced"
        elif kind != "device":
            assert os.pread(descriptor, 100, 0) == b"new"
    finally:
        os.close(descriptor)
        if read_end is not None:
            os.close(read_end)
    assert not {entry.name for entry in unprivileged.iterdir()} - {"out", "link"}


@needs_open_files
@pytest.mark.usefixtures("unprivileged")
@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
def test_an_open_file_without_room_or_right_is_refused_by_the_check():
    for path, flags, reason in (
        (FULL, os.O_WRONLY, "No space left on device"),
        ("/proc/self/exe", os.O_RDONLY, "Text file busy|Permission denied"),
    ):
        descriptor = os.open(path, flags)
        try:
            with pytest.raises(InvalidInput, match=reason):
                check_output(OPEN_FILES / str(descriptor))
        finally:
            os.close(descriptor)


@pytest.mark.parametrize(("mode", "is_replaced"), [(0o711, False), (0o733, True)])
def test_a_folder_that_may_be_searched_but_not_read_takes_an_output(
    shared_folder, mode, is_replaced, monkeypatch
):
    """With permission to write, the file is replaced; the disk is then synchronised as a whole."""
    make_folder(shared_folder / "a", 0, 0o711)
    path = shared_folder / "a" / "b" / "out"
    make_folder(path.parent, 0, mode)
    make_file(path, USER, content="earlier")
    number = path.stat().st_ino
    synced = []
    monkeypatch.setattr(os, "sync", lambda: synced.append(path.stat().st_ino))
    with other_account():
        replace_output(path)
    assert path.read_text() == "new"
    assert (path.stat().st_ino != number) == is_replaced
    assert synced == ([path.stat().st_ino] if is_replaced else [])


def test_a_file_that_is_written_in_place_is_synchronised_when_complete(tmp_path, monkeypatch):
    path = tmp_path / "out"
    path.write_text("a longer earlier text")
    contents = []
    real_fsync = os.fsync

    def record_sync(descriptor):
        contents.append(path.read_bytes())
        real_fsync(descriptor)

    def refuse(*_names, **_folders):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", refuse)
    write_output(path, b"new")
    assert contents == [b"a longer earlier text", b"new"], "the new file, then the earlier one"


@needs_open_files
def test_no_descriptor_stays_open(folders):
    public, own = folders
    make_link(public / "link", own / "out", STRANGER)
    make_link(public / "good", own / "out", USER)
    make_folder(public / "folder", STRANGER)
    (own / "loop").symlink_to("loop")
    os.mkfifo(own / "pipe")
    before = list_open_files()
    names = ["link", "good", "folder/out", "new", "../own/loop", "../own", "../own/missing/out"]
    for path in [*(public / name for name in names), own / "out", own / "pipe"]:
        for act in (check_output, lambda path: path.is_fifo() or write_output(path, b"")):
            with other_account(), suppress(InvalidInput):
                act(path)
    assert list_open_files() == before
