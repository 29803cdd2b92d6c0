"""The console in a browser, used by keyboard: no external resources, no failing scripts."""

import re
from importlib import resources

import numpy as np
import pytest

import serving_browser as browser
import serving_tools as tools
from store_tools import Q, Y
from vicinal.serving.keys import KeyFile
from vicinal.store import Store, StoreExtractor

VECTOR = ", ".join(map(str, Q[0].tolist()))


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser.page(tmp_path_factory.mktemp("profile")) as opened_tab:
        yield opened_tab


@pytest.fixture
def page(tab):
    """The browser's tab, empty and of the usual size."""
    tab.open("about:blank")
    tab.send("Emulation.clearDeviceMetricsOverride")
    tab.send("Emulation.setEmulatedMedia", features=[])
    tab.events.clear()
    return tab


def sign_in(page, service, role):
    """Open the console and sign in by keyboard."""
    page.open(f"http://127.0.0.1:{service.port}/console")
    page.until("document.activeElement.id === 'key'")
    page.type(service.keys[role])
    page.press("Enter", "\r")
    page.until("!document.getElementById('console').hidden")


def read_text(page, name):
    return page.run(f"document.getElementById('{name}').innerText")


def send_query(page):
    page.until(
        "!document.getElementById('send').disabled"
    )  # the page has shown the previous answer
    page.run("document.getElementById('send').focus()")
    page.press("Enter", "\r")


def test_a_query_by_keyboard_and_what_it_cost(tmp_path, page):
    with tools.running(tmp_path / "store") as service:
        sign_in(page, service, "analyst")
        assert "little about any single subject" in read_text(page, "guarantee-summary")
        assert "60 remaining" in read_text(page, "plans").replace("\n", " ")
        page.run("document.getElementById('vector').focus()")
        page.type(VECTOR)
        send_query(page)
        page.until("document.querySelector('.verdict')")
        answer = read_text(page, "answer")
        stored = service.store.predict(Q[:1], analyst="anna")
        assert stored.charged == 0
        label = page.run("document.querySelector('.verdict strong').innerText")
        assert label == str(stored.labels[0])
        assert "confidence" in answer
        share = f"{100 * max(stored.probabilities[0]):.1f}".removesuffix(".0")
        assert f"probability {share} %" in answer
        assert len(re.findall(r"[\d.]+ %\n", answer)) == 1 + 3  # of the label, and of every class
        assert "used 1 answer" in answer
        page.until("document.getElementById('plans').innerText.includes('59')")
        send_query(page)
        page.until("document.getElementById('answer').innerText.includes('repeated, not charged')")
        assert page.run("document.getElementById('history-card').hidden")
        check_consistent(page, service)


def test_a_curator_sees_the_history(tmp_path, page):
    with tools.running(tmp_path / "store") as service:
        service.call("DELETE", "/v1/subjects/person-3", key="curator")
        sign_in(page, service, "curator")
        assert "Erasure" in read_text(page, "history")
        assert "person-3" not in page.run("document.documentElement.outerHTML")
        check_consistent(page, service)


def submit_form(page, name):
    """Submit a form and return its result and error texts."""
    result = f"document.getElementById('{name}-result')"
    error = f"document.getElementById('{name}-error')"
    page.run(f"({result}.textContent = '', document.getElementById('{name}').requestSubmit())")
    page.until(f"{result}.innerText !== '' || {error}.innerText !== ''")
    page.until(f"!document.querySelector('#{name} button').disabled")
    return page.run(f"{result}.innerText + {error}.innerText")


@pytest.mark.parametrize("target", [None, *tools.tools.TARGETS])
def test_a_curator_adds_a_record_and_erases_a_subject(tmp_path, page, target):
    """Fails if a form changes wrong data, changes them twice, or without confirmation."""
    with tools.running(tmp_path / "store", target=target) as service:
        sign_in(page, service, "analyst")
        assert page.run("document.getElementById('records').hidden")
        page.run("document.getElementById('sign-out').click()")
        page.type(service.keys["curator"])
        page.press("Enter", "\r")
        page.until("!document.getElementById('records').hidden")
        history = service.store.facts()["version"]
        page.run(f"document.getElementById('new-vector').value = '{VECTOR}'")
        if target != "labels":
            assert "Enter the target of the record" in submit_form(page, "add")
            field = "new-target-0" if target else "new-label"
            page.run(f"document.getElementById('{field}').value = '1'")
        page.run("document.getElementById('new-subject').value = 'Person-3'")
        assert "ids_differ" in submit_form(page, "add")
        assert service.store.facts()["version"] == history
        page.run("document.getElementById('new-subject').value = 'news/7'")
        assert "Record added. The data now have version" in submit_form(page, "add")
        assert service.store.facts()["version"] == history + 1
        page.run("document.getElementById('erased-subject').value = 'news/7'")
        assert "Tick the box" in submit_form(page, "erase")
        for outcome, expected in ((True, "and is now erased"), (False, "now holds no record")):
            page.run("document.getElementById('erased-subject').value = 'news/7'")
            page.run("document.getElementById('confirm-erasure').click()")
            page.run(f"document.getElementById('outcome').checked = {str(outcome).lower()}")
            assert expected in submit_form(page, "erase")
        assert service.store.presence(["news/7"]).erased == 1
        assert "news/7" not in page.run("document.documentElement.innerText")
        assert page.troubles() == [entry for entry in page.troubles() if "409" in entry]


CSV = "visit,n0,n1,n2,n3\n" + "".join(
    f"=V{i},{','.join(map(str, row))}\n" for i, row in enumerate(Q[:3, :4].tolist())
)


def choose_file(page, text):
    """Choose a CSV file with this content, as a user does in the dialog of the browser."""
    page.run(
        f"""(() => {{
          const files = new DataTransfer();
          files.items.add(new File([{text!r}], 'visits.csv'));
          document.getElementById('csv').files = files.files;
          const create = URL.createObjectURL;
          URL.createObjectURL = (blob) => {{ window.downloaded = blob; return create(blob); }};
        }})()"""
    )


def test_answers_to_a_csv_file_are_downloaded(tmp_path, page):
    """Fails if the file is read unlike `vicinal predict` reads it, or a spreadsheet runs a cell."""
    with tools.running(tmp_path / "store", make=tools.make_named) as service:
        sign_in(page, service, "analyst")
        assert "Choose a CSV file" in submit_form(page, "file")
        choose_file(page, "PK\x03\x04")
        assert "This is an Excel workbook" in submit_form(page, "file")
        choose_file(page, CSV.replace("n3", "other"))
        assert "n3" in submit_form(page, "file")
        assert service.store.quota().used == 0
        choose_file(page, CSV)
        page.run("document.getElementById('id-column').value = 'visit'")
        assert "Used 3 answers; 57 remain" in submit_form(page, "file")
        text = page.run("downloaded.text()")
        rows = [line.split(",") for line in text.splitlines()]
        assert rows[0][:2] == ["visit", "label"]
        assert [row[0] for row in rows[1:]] == ["'=V0", "'=V1", "'=V2"]
        stored = service.store.predict(Q[:3], analyst="anna")
        assert stored.charged == 0
        assert [row[1] for row in rows[1:]] == [str(label) for label in stored.labels]
        page.until("document.getElementById('plans').innerText.includes('57')")
        assert [entry for entry in page.troubles() if "422" not in entry] == []


def test_mistakes_are_said(tmp_path, page):
    with tools.running(tmp_path / "store") as service:
        page.open(f"http://127.0.0.1:{service.port}/console")
        page.until("document.activeElement.id === 'key'")
        page.type("vic_wrong")
        page.press("Enter", "\r")
        page.until("document.getElementById('key-error').innerText.includes('not valid')")
        assert page.run("document.getElementById('console').hidden")
        page.run("document.getElementById('key').value = ''")
        page.type(KeyFile(service.folder).add("prom", "monitor", "default"))
        page.press("Enter", "\r")
        error = "document.getElementById('key-error').innerText"
        page.until(f"{error}.includes('The console needs a key of an analyst or curator.')")
        page.run("document.getElementById('key').value = ''")
        page.type(service.keys["analyst"])
        page.press("Enter", "\r")
        page.until("!document.getElementById('console').hidden")
        for wrong in ("", "1, 2", "1, 2, 3, x"):
            page.run(f"document.getElementById('vector').value = '{wrong}'")
            page.run("document.getElementById('query-error').textContent = ''")
            send_query(page)
            page.until("document.getElementById('query-error').innerText !== ''")
        assert service.store.quota().used == 0
        page.run("document.getElementById('sign-out').click()")
        page.until("!document.getElementById('sign-in').hidden")
        assert service.keys["analyst"] not in page.run("document.documentElement.outerHTML")


def test_an_image_is_sent_as_grey_pixels(tmp_path, page):
    def make_image_store(folder, **plan):
        extractor = StoreExtractor("hog")
        images = np.random.default_rng(5).integers(0, 256, (350, 8, 8), dtype=np.uint8)
        return Store.init(
            folder, images[50:], Y, classes=range(3), extractor=extractor, n_records=300,
            public=extractor.transform(images[:50]), n_queries=20, n_neighbors=40,
            noise_multiplier=2.0, **plan,
        )  # fmt: skip

    with tools.running(tmp_path / "store", make=make_image_store) as service:
        sign_in(page, service, "analyst")
        page.run(
            """(async () => {
              for (const id of ['width', 'height']) document.getElementById(id).value = 8;
              const canvas = new OffscreenCanvas(16, 16), pen = canvas.getContext('2d');
              pen.fillStyle = '#fff'; pen.fillRect(0, 0, 16, 16);
              pen.fillStyle = '#000'; pen.fillRect(6, 3, 3, 9);
              const files = new DataTransfer(), image = document.getElementById('image');
              files.items.add(new File([await canvas.convertToBlob()], 'one.png'));
              image.files = files.files;
              image.dispatchEvent(new Event('change'));
            })()"""
        )
        page.until("!document.querySelector('.preview').hidden")
        page.run("document.getElementById('invert').click()")
        send_query(page)
        page.until("document.querySelector('.verdict')")
        assert service.store.quota().used == 1
        check_consistent(page, service)


AXE = """(async () => {
  const found = await axe.run(document, { resultTypes: ['violations'] });
  return found.violations.filter(({ impact }) => impact !== 'minor')
    .map(({ id, impact, nodes }) => [id, impact, nodes[0].html]);
})()"""


def find_violations(page):
    """Return the accessibility violations that axe-core finds, except minor ones."""
    pytest.importorskip("axe_core_python")
    script = resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page.run(f"(() => {{ {script}; return true; }})()")
    return page.run(AXE)


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1000, False)])
def test_axe_finds_no_fault_on_a_phone_or_a_desktop(tmp_path, page, width, dark):
    with tools.running(tmp_path / "store") as service:
        page.size(width, 900, dark=dark)
        page.open(f"http://127.0.0.1:{service.port}/console")
        page.until("document.activeElement.id === 'key'")
        assert find_violations(page) == []
        sign_in(page, service, "curator")
        page.run("document.getElementById('vector').focus()")
        page.type(VECTOR)
        send_query(page)
        page.until("document.querySelector('.verdict')")
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        check_consistent(page, service)
        assert find_violations(page) == []
        page.run("document.querySelector('.meter').removeAttribute('aria-label')")
        assert [violation[0] for violation in find_violations(page)] == ["role-img-alt"]


def test_the_first_page_is_the_console(tmp_path):
    with tools.running(tmp_path / "store") as service:
        reply = service.call("GET", "/", key=None)
        assert (reply.status, reply.headers["Location"]) == (307, "/console")


def test_numbers_with_names_have_a_field_each(tmp_path, page):
    with tools.running(tmp_path / "store", make=tools.make_named) as service:
        sign_in(page, service, "analyst")
        names = "[...document.querySelectorAll('.fields label')].map(l => l.innerText)"
        assert page.run(names) == tools.NAMES
        send_query(page)
        page.until("document.getElementById('query-error').innerText.includes('n0, n1')")
        for i, value in enumerate(Q[0].tolist()):
            page.run(f"document.getElementById('column-{i}').value = '{value}'")
        send_query(page)
        page.until("document.querySelector('.verdict')")
        assert service.store.predict(Q[:1], analyst="anna").charged == 0
        check_consistent(page, service)


@pytest.mark.parametrize("target", tools.tools.TARGETS)
def test_an_answer_that_is_no_class_is_read_by_keyboard_and_axe_finds_no_fault(
    tmp_path, page, target
):
    """Fails if the page shows an answer that differs from the store's or is not accessible."""
    with tools.running(tmp_path / "store", target=target) as service:
        page.size(1000, 900, dark=target == "labels")
        sign_in(page, service, "analyst")
        page.run("document.getElementById('vector').focus()")
        page.type(VECTOR)
        send_query(page)
        page.until("document.querySelector('#answer .verdict')")
        assert service.store.predict(Q[:1], analyst="anna").charged == 0
        assert find_violations(page) == []
        check_consistent(page, service)


def check_consistent(page, service):
    """Check that no script failed, no policy was violated, and only the service was contacted."""
    assert page.troubles() == []
    own = f"http://127.0.0.1:{service.port}/"
    assert [url for url in page.addresses() if not url.startswith((own, "data:", "blob:"))] == []
    assert page.run("localStorage.length + sessionStorage.length + document.cookie.length") == 0
