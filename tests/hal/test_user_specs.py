"""Device specs of the user's own, in a folder of theirs."""

from dataclasses import replace

from rollergen.hal.load import every_spec, load_device, save_device


def test_a_file_of_the_users_may_have_any_name(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLERGEN_DEVICES_DIR", str(tmp_path))
    for name in ("a.json.json", "v100.json", "mine.json"):
        save_device(replace(load_device("v100"), title=name), tmp_path / name)
    found = {asked: device.title for asked, device in every_spec() if device.title.endswith(".json")}
    assert found == {str(tmp_path / "a.json.json"): "a.json.json", str(tmp_path / "v100.json"): "v100.json", "mine": "mine.json"}
    assert {load_device(asked).title for asked in found} == set(found.values())
