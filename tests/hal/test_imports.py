"""What the hardware layer imports, in a process of its own."""

from tests.hal.test_opencl_runtime import in_a_fresh_process


def test_the_hardware_layer_and_devices_that_ship_with_it_need_no_pyopencl_jsonschema_or_metadata_of_packages():
    found = in_a_fresh_process(
        "import sys, rollergen.hal.probes.host, rollergen.hal.load, rollergen.hal.runtime, rollergen.hal.runtimes.opencl_runtime\n"
        "from rollergen.hal.load import load_device\n"
        "print(load_device('cpu').kind.language, load_device('v100-sxm2').units)\n"
        "print([name for name in ('pyopencl', 'jsonschema', 'importlib.metadata') if name in sys.modules])"
    )
    assert found.stdout.split("\n") == ["opencl 80", "[]", ""], found.stderr
