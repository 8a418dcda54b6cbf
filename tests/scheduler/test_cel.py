"""Selectors in CEL: what Kubernetes 1.37 says of each of them is what is said here.

The answers are Kubernetes' own: dynamic-resource-allocation/cel v0.37.2 was asked about this device with these expressions.
"""

import pytest

from controller.scheduler.cel.programs import CostExceeded, Program, compiled
from controller.scheduler.cel.syntax import LONGEST
from controller.scheduler.cel.values import EvaluationError
from controller.scheduler.device_selectors import seen_by_selectors
from tests.scheduler.selector_words import A100

TRUE = (
    "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')",
    "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
    "device.capacity['gpu.nvidia.com'].memory == quantity('40960Mi')",
    "device.capacity['gpu.nvidia.com'].memory != quantity('40G')",
    "device.capacity['example.com'].x.isLessThan(quantity('2'))",
    "device.capacity['gpu.nvidia.com'].memory.asInteger() == 42949672960",
    "device.capacity['example.com'].x.asApproximateFloat() == 1.5",
    "isQuantity('1.3Gi') && !isQuantity('200K')",
    "quantity('1e3') == quantity('1k')",
    "device.attributes['gpu.nvidia.com'].cuda.isGreaterThan(semver('7.5.0'))",
    "device.attributes['gpu.nvidia.com'].cuda.compareTo(semver('8.0.0')) == 0",
    "device.attributes['gpu.nvidia.com'].driverVersion.major() == 550",
    "device.attributes['gpu.nvidia.com'].driverVersion.minor() == 54 && device.attributes['gpu.nvidia.com'].driverVersion.patch() == 15",  # noqa: E501
    "device.attributes['gpu.nvidia.com'].pre.isLessThan(semver('1.2.3'))",
    "device.attributes['gpu.nvidia.com'].pre == semver('1.2.3-rc.1')",
    "semver('1.2.3-alpha.1').isLessThan(semver('1.2.3-alpha.beta'))",
    "semver('1.2.3-rc.10').isGreaterThan(semver('1.2.3-rc.9'))",
    "semver('1.2.3-rc').isLessThan(semver('1.2.3-rc.1'))",
    "semver('v1.0', true) == semver('1.0.0')",
    "semver('01.01.01', true) == semver('1.1.1')",
    "isSemver('v1.0', true) && !isSemver('v1.0')",
    "isSemver('1.2.3+build.01')",
    "isSemver('1.2.03-rc.1', true)",
    "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
    'device.driver == "gpu.nvidia.com" || device.attributes["none"].type == "gpu"',
    'device.attributes["none"].type == "gpu" || device.driver == "gpu.nvidia.com"',
    "has(device.attributes['gpu.nvidia.com'].type)",
    "has(device.attributes['gpu.nvidia.com'].empty)",
    "has(device.attributes.foo)",
    "'type' in device.attributes['gpu.nvidia.com']",
    "'gpu.nvidia.com' in device.attributes",
    "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:00'",
    "device.attributes['gpu.nvidia.com']['type'] == 'gpu'",
    "device.attributes['gpu.nvidia.com'].index == 3",
    "device.attributes['gpu.nvidia.com'].index == 3.0",
    "device.attributes['gpu.nvidia.com'].index == 3u",
    "device.attributes['gpu.nvidia.com'].index != 'a'",
    "device.attributes['gpu.nvidia.com'].index < 3.5",
    "device.attributes['gpu.nvidia.com'].index in [1, 2, 3]",
    "device.attributes['gpu.nvidia.com'].type in ['gpu', 'mig']",
    "device.attributes['gpu.nvidia.com'].index % 2 == 1",
    "device.attributes['gpu.nvidia.com'].neg / 2 == -3",
    "device.attributes['gpu.nvidia.com'].neg % 2 == -1",
    "device.attributes['gpu.nvidia.com'].index - -2 * 3 == 9",
    "-device.attributes['gpu.nvidia.com'].neg == 7",
    "- - 3 == 3",
    "-9223372036854775808 < 0",
    "0x1F == 31 && 0x1Fu == 31u",
    "1.5e3 == 1500.0 && .5 == 0.5",
    "device.attributes['gpu.nvidia.com'].ecc",
    "device.attributes['gpu.nvidia.com'].ecc ? true : false",
    "cel.bind(dra, device.attributes['gpu.nvidia.com'], dra.ecc && dra.index == 3)",
    "cel.bind(a, 1, cel.bind(b, a + 1, a + b == 3))",
    "device.attributes['gpu.nvidia.com'].?none.orValue('x') == 'x'",
    "device.attributes['gpu.nvidia.com'].?type.orValue('x') == 'gpu'",
    "device.attributes['gpu.nvidia.com'].?type.hasValue()",
    "device.attributes[?'none'].hasValue()",
    "device.attributes.?none.hasValue()",
    "device.attributes['gpu.nvidia.com'].?none.optMap(x, x == 'gpu').orValue(true)",
    "device.attributes['gpu.nvidia.com'].?type.optMap(x, x == 'gpu').orValue(false)",
    "optional.of(1).value() == 1 && !optional.none().hasValue()",
    "optional.none().or(optional.of(2)).value() == 2",
    "[?optional.of(1), ?optional.none(), 2] == [1, 2]",
    "{'a': 1, ?'b': optional.none()} == {'a': 1}",
    "[1, 2, 3].all(x, x > 0) && [1, 2, 3].exists(x, x == 2) && [1, 2, 3].exists_one(x, x == 2)",
    "[1, 2, 3].map(x, x * 2) == [2, 4, 6] && [1, 2, 3].filter(x, x > 1) == [2, 3] && [1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",  # noqa: E501
    "[1, 0].exists(x, 1 / x == 1)",
    "[0, 1].exists(x, 1 / x == 1)",
    "device.attributes.exists(d, d == 'gpu.nvidia.com')",
    "device.attributes['gpu.nvidia.com'].exists(k, k.startsWith('product'))",
    "device.attributes['gpu.nvidia.com'].all(k, k.size() > 2)",
    "size(device.driver) == 14 && device.driver.size() == 14",
    "size([1, 2]) == 2 && size({'a': 1}) == 1 && size('é') == 1 && size(b'é') == 2",
    "device.driver.startsWith('gpu') && device.driver.endsWith('.com') && device.driver.contains('nvidia')",
    "device.driver.split('.') == ['gpu', 'nvidia', 'com']",
    "device.driver.split('.', 2) == ['gpu', 'nvidia.com']",
    "'abc'.split('') == ['a', 'b', 'c'] && 'abc'.split('', 2) == ['a', 'bc'] && 'abc'.split('b', 0) == []",
    "device.driver.split('.')[1] == 'nvidia'",
    "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
    "'hello'.substring(1) == 'ello' && 'hello'.substring(1, 3) == 'el' && 'hello'.charAt(1) == 'e' && 'hello'.charAt(5) == ''",  # noqa: E501
    "'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3 && 'hello'.indexOf('z') == -1 && 'hello'.indexOf('l', 3) == 3",  # noqa: E501
    "'hello'.lastIndexOf('l', 2) == 2",
    "'b'.lastIndexOf('b', 2) == -1 && 'b'.indexOf('b', 3) == -1 && 'b'.indexOf('', 3) == 1",
    "'hello'.replace('l', 'L') == 'heLLo' && 'hello'.replace('l', 'L', 1) == 'heLlo'",
    "'  a '.trim() == 'a' && 'aÉ'.upperAscii() == 'AÉ' && 'ÀB'.lowerAscii() == 'Àb'",
    "'abc 123'.find('[0-9]+') == '123' && '123 abc 456'.findAll('[0-9]+') == ['123', '456'] && '1 2 3'.findAll('[0-9]', 2) == ['1', '2']",  # noqa: E501
    "matches('abc', 'b') && !'abc'.matches('^b') && 'abc'.matches('(?i)B')",
    "r'a\\d' == 'a\\\\d' && \"\\x41\\u00e9\\101\\n\" == \"AéA\\n\" && '''it's''' == \"it's\"",
    "b'\\xff' == b'\\377' && b'ab' + b'c' == b'abc'",
    "int('12') == 12 && int(3.9) == 3 && int(-3.9) == -3 && uint(3) == 3u && double(2) == 2.0 && string(12) == '12' && string(true) == 'true' && string(1.5) == '1.5'",  # noqa: E501
    "string(2.0) == '2'",
    "bool('true') && !bool('F'.lowerAscii())",
    "int('+3') == 3",
    "type(device.driver) == string && type(1) == int && type([]) == list",
    "dyn(1) == 1u && dyn(1) == 1.0 && dyn(1) != '1' && dyn(2) > 1.5",
    "[1, 2] == [1, 2] && {'a': 1} == {'a': 1} && [1] + [2] == [1, 2] && [1] != [2]",
    "{'a': 1}.a == 1 && {'a': 1}['a'] == 1 && 'a' in {'a': 1} && {1: 'x'}[1] == 'x'",
    "[3, 1, 2].max() == 3 && [3, 1, 2].min() == 1 && [1, 2].sum() == 3 && [1, 2].isSorted() && ![2, 1].isSorted() && [1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2",  # noqa: E501
    "[1, 2].includes(1)",
    "sets.contains([1, 2], [1]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])",
    "true",
    "'a' == 'a' ? 1 == 1 : 2 == 1",
    "1 < 2 == true",
    "'a' + 'b' == 'ab' && 'a' < 'b' && false < true",
    "null == null",
    "!device.allowMultipleAllocations",
    "device.attributes['gpu.nvidia.com'].cuda in [semver('8.0.0')]",
    "device.driver == 'gpu.nvidia.com' // a comment",
    "[[1, 2], [3]].exists(l, l.exists(x, x == 3))",
    'device.attributes["gpu.nvidia.com"].uuid.matches(device.attributes["gpu.nvidia.com"].uuid)',
    ".device.driver == 'gpu.nvidia.com'",
    'device.driver.lowerAscii().contains("NVIDIA".lowerAscii()) && [device.driver].exists(d, d.matches("^gpu"))',
    "1 + 2 * 3 - 4 / 2 == 5",
    "device.capacity['gpu.nvidia.com'].memory.asInteger() > 40 * 1024 * 1024 * 1024 - 1",
    "[1, 2, 3].map(x, [1, 2, 3].map(y, x * y)).exists(l, l == [2, 4, 6])",
    "device.attributes['gpu.nvidia.com'].productName in ['NVIDIA A100-SXM4-40GB', 'NVIDIA H100']",
    "!(device.attributes['gpu.nvidia.com'].productName.contains('H100'))",
    "device.attributes['none'].?x.orValue(device.attributes['gpu.nvidia.com'].index) == 3",
)
FALSE = (
    "device.attributes['gpu.nvidia.com'].cuda in [size('8.0.0')]",
    "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('40Gi'))",
    "device.capacity['example.com'].x.isInteger()",
    "device.attributes['gpu.nvidia.com'].cuda.isLessThan(semver('8.0.0'))",
    "isSemver('1.2') || isSemver('1.2.3-01')",
    "isSemver('1.2-rc', true)",
    "isSemver('1.2.x', true)",
    "isSemver('', true)",
    'device.attributes["none"].type == "gpu" && device.driver == "other"',
    "has(device.attributes['none'].type)",
    "'type' in device.attributes['none']",
    "'none' in device.attributes",
    "device.attributes['gpu.nvidia.com'].index == 'a'",
    "!device.attributes['gpu.nvidia.com'].ecc",
    "device.attributes['gpu.nvidia.com'][?'none'].hasValue()",
    "optional.ofNonZeroValue('').hasValue()",
    "[0, 2].all(x, 1 / x == 1)",
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'.matches('^(a+)+$')",
    "'a\\nb'.matches('a.b')",
    "{'a': 1, 'a': 2}.a == 1",
    "true ? false : true ? true : false",
    "!true || true && false",
    "device.allowMultipleAllocations",
    "double('nan') == double('nan')",
    "'8.0.0' == device.attributes['gpu.nvidia.com'].cuda",
)
NO_VALUE = (
    "device.capacity['gpu.nvidia.com'].none.isLessThan(quantity('2'))",
    "device.capacity['none'].none.isLessThan(quantity('2'))",
    "semver('hello') == semver('1.0.0')",
    'device.attributes["none"].type == "gpu"',
    'device.attributes["gpu.nvidia.com"].none == "gpu"',
    "device.attributes['gpu.nvidia.com'].index < 'a'",
    "device.attributes['gpu.nvidia.com'].index / 0 == 1",
    "device.attributes['gpu.nvidia.com'].index + 9223372036854775807 > 0",
    "device.attributes['gpu.nvidia.com'].type",
    "device.attributes['gpu.nvidia.com'].type ? true : false",
    "device.attributes['gpu.nvidia.com'].ecc && device.attributes['gpu.nvidia.com'].type",
    "optional.none().value() == 2",
    "[0, 2].exists(x, 1 / x == 1)",
    "device.driver.split('.')[5] == 'nvidia'",
    "device.driver.split('.')[-1] == 'nvidia'",
    "'hello'.substring(7) == ''",
    "'hello'.substring(3, 1) == ''",
    "{'a': 1}.b == 1",
    "device.attributes['gpu.nvidia.com'].cuda == 1",
    "device.attributes['gpu.nvidia.com'].cuda == '8.0.0'",
    "device.attributes['gpu.nvidia.com'].productName.matches(device.driver + '(')",
    "int(device.driver) == 1",
    "device.attributes['gpu.nvidia.com'].index + device.driver == 'x'",
    "device.attributes['gpu.nvidia.com'].index / 1.0 == 3.0",
)
REFUSED = (
    "9223372036854775808 > 0",
    "'\\q' == 'q'",
    "device.nothing == 1",
    "nothing == 1",
    "nothing(1) == 1",
    "device.driver.nothing()",
    "device.driver.startsWith('a', 'b')",
    "device.driver ==",
    "device.driver == 'a' 'b'",
    "(device.driver",
    "'a",
    "device.driver == gpu",
    "if == 1",
    "// a comment",
)


def program(expression: str) -> Program:
    found = compiled(expression)
    assert isinstance(found, Program), found
    return found


@pytest.mark.parametrize("expression", TRUE)
def test_what_matches(expression: str) -> None:
    assert program(expression).matches(seen_by_selectors("gpu.nvidia.com", A100))[0] is True


@pytest.mark.parametrize("expression", FALSE)
def test_what_does_not_match(expression: str) -> None:
    assert program(expression).matches(seen_by_selectors("gpu.nvidia.com", A100))[0] is False


@pytest.mark.parametrize("expression", NO_VALUE)
def test_what_has_no_value(expression: str) -> None:
    with pytest.raises(EvaluationError):
        program(expression).matches(seen_by_selectors("gpu.nvidia.com", A100))


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_refused(expression: str) -> None:
    assert isinstance(compiled(expression), str)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        pytest.param(
            "timestamp('x') == 1", "undeclared reference to 'timestamp'", id="a function that is not read"
        ),
        pytest.param(
            "'%s'.format([1]) == 'a'", "undeclared reference to 'format'", id="nor this one of a string"
        ),
        pytest.param("'" + "a" * LONGEST + "' == 'a'", f"is longer than {LONGEST} bytes", id="a book"),
        pytest.param("(" * 101 + "true" + ")" * 101, "nested more than 100 deep", id="a deep one"),
        pytest.param("device.attributes" + ".x" * 4000, "is nested too deeply", id="a long way down"),
        pytest.param("1" * 5000 + " == 1", "Exceeds the limit", id="a number of five thousand digits"),
        pytest.param("a.b", "undeclared reference to 'a'", id="a name that nobody gave"),
    ],
)
def test_why_one_is_refused(expression: str, why: str) -> None:
    assert why in str(compiled(expression))


@pytest.mark.parametrize(
    "expression",
    [
        "[1][double('inf')] == 1",
        "[1][double('nan')] == 1",
        f"int('{'1' * 5000}') == 1",
        f"semver('{'1' * 5000}.0.0').major() == 1",
        "quantity('1e30').add(quantity('1e30')).asInteger() == 1",
    ],
)
def test_what_python_does_not_convert_has_no_value(expression: str) -> None:
    with pytest.raises(EvaluationError):
        program(expression).matches({})


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(
            f"{list(range(100))}.all(x, {list(range(100))}.all(y, {list(range(100))}.all(z, x + y + z >= 0)))",
            id="loops in loops",
        ),
        pytest.param(
            "'0123456789'.startsWith("
            + "".join(f"cel.bind(a{n}, a{n - 1} + a{n - 1}, " for n in range(1, 40)).replace(
                "a0", "device.driver"
            )
            + "a39"
            + ")" * 40,
            id="a text that doubles and doubles",
        ),
        pytest.param(f"{list(range(900))}.all(x, x in {list(range(900))})", id="long lists again and again"),
        pytest.param(
            "".join(f"cel.bind(a{n}, [{f'a{n - 1}, a{n - 1}' if n else '1'}], " for n in range(18))
            + "a17 == a17"
            + ")" * 18,
            id="a list that holds one list twice, and that another one twice",
        ),
        pytest.param(
            f"sets.intersects('{'a' * 800}'.split(''), '{'b' * 800}'.split(''))", id="each with each of a set"
        ),
        pytest.param(f"'{'a' * 900}'.split('').map(x, {[1] * 2000}).size() > 1", id="a long text in a loop"),
        pytest.param(
            f"{list(range(1000))}.exists(x, ''.matches(string(x) + 'a{{900}}'))", id="many long patterns"
        ),
        pytest.param(
            f"{list(range(100))}.exists(x, ''.matches(string(x) + '\\\\pL{{900}}'))",
            id="patterns that are too large",
        ),
    ],
)
def test_a_selector_that_takes_too_long_has_no_value(expression: str) -> None:
    with pytest.raises(CostExceeded):
        program(expression).matches({"driver": "0123456789"})


def test_a_failure_says_what_it_cost() -> None:
    with pytest.raises(EvaluationError) as failure:
        program(f"{list(range(500))}.all(x, x >= 0) && 1 / 0 == 1").matches({"driver": "d"})
    assert failure.value.cost > 1000


def test_only_numbers_are_summed_up() -> None:
    """As in Kubernetes: texts and lists would grow and grow."""
    with pytest.raises(EvaluationError, match="no such overload"):
        program("['a', 'b'].sum() == 'ab'").matches({"driver": "d"})


def test_a_long_chain_of_the_same_is_no_deep_one() -> None:
    expression = " || ".join(f"device.driver == 'd{number}'" for number in range(300))
    assert program(expression).matches(seen_by_selectors("d299", A100))[0] is True
