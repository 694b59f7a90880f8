"""Products by oneDNN, which takes MKL's place where that is slow, against PyTorch's."""

import io

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from regard.models import decode_kernels
from regard.models.decode_kernels import Linear, product

BATCH, N = 3, 7


@pytest.fixture
def by_onednn(monkeypatch):
    """As on a processor on which MKL is slow, for products of any size."""
    monkeypatch.setattr(decode_kernels, "is_mkl_slow", lambda: True)
    monkeypatch.setattr(decode_kernels, "WORTH", 1)
    monkeypatch.setattr(decode_kernels, "FEW", 0)


ROWS = {
    "vector": lambda size: torch.randn(size),
    "matrix": lambda size: torch.randn(N, size),
    "batch": lambda size: torch.randn(BATCH, N, size),
    "transposed": lambda size: torch.randn(size, N).T,
    "permuted": lambda size: torch.randn(N, BATCH, size).transpose(0, 1),
    "part": lambda size: torch.randn(N, 2 * size)[:, 1 : size + 1],
    "repeated": lambda size: torch.randn(size).expand(BATCH, N, size),
    "one number": lambda size: torch.randn(1).expand(N, size),
    "none": lambda size: torch.randn(0, size),
}
MATRICES = {
    "matrix": lambda outputs, size: torch.randn(outputs, size),
    "transposed": lambda outputs, size: torch.randn(size, outputs).T,
    "part": lambda outputs, size: torch.randn(outputs, size + 5)[:, 3:-2],
    "some": lambda outputs, size: torch.randn(outputs + 5, size)[3:-2],
    "repeated": lambda outputs, size: torch.randn(size).expand(outputs, size),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 53])
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("rows", ROWS)
def test_products_by_onednn_are_products(rows, matrix, outputs, bias, by_onednn):
    rows, matrix = ROWS[rows](37), MATRICES[matrix](outputs, 37)
    bias = torch.randn(outputs) if bias else None
    with torch.no_grad():
        torch.testing.assert_close(product(rows, matrix, bias), nn.functional.linear(rows, matrix, bias))
    inputs = [tensor.requires_grad_() for tensor in (rows, matrix, bias) if tensor is not None]
    results = [multiply(rows, matrix, bias) for multiply in (product, nn.functional.linear)]
    torch.testing.assert_close(*results)
    slope = torch.randn(outputs)
    for loss in (lambda output: output.sum(), lambda output: (output * slope).square().sum()):
        gradients = [torch.autograd.grad(loss(result), inputs, retain_graph=True) for result in results]
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_products_by_onednn_have_second_derivatives_and_notice_changes(by_onednn):
    rows, linear = torch.randn(BATCH, N, 13, requires_grad=True), Linear(13, 11)
    results = []
    for multiply in (linear, lambda rows: nn.functional.linear(rows, linear.weight, linear.bias)):
        (slope,) = torch.autograd.grad(multiply(rows).square().sum(), rows, create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum(), (rows, linear.weight)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-2)
    loss = linear(rows).sum()
    with torch.no_grad():
        linear.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")  # forward-mode differentiation calls it
def test_where_onednn_has_no_product_pytorch_has(by_onednn):
    """Other dtypes, transforms, shapes without numbers, autocast, a graph: what Linear does is what nn.Linear does."""
    rows, linear = torch.randn(BATCH, N, 13), Linear(13, 11)
    plain = nn.functional.linear(rows, linear.weight, linear.bias)
    torch.testing.assert_close(torch.func.vmap(linear)(rows), plain)
    torch.testing.assert_close(
        torch.func.grad(lambda rows: linear(rows).sum())(rows), linear.weight.sum(0).expand_as(rows)
    )
    torch.testing.assert_close(torch.compile(linear, backend="eager", fullgraph=True)(rows), plain)
    with forward_ad.dual_level():
        dual = linear(forward_ad.make_dual(rows, rows))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, rows @ linear.weight.T)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(rows).dtype == torch.bfloat16
    assert linear.to("meta")(rows.to("meta")).shape == plain.shape
    double = Linear(13, 11).double()
    torch.testing.assert_close(double(rows.double()), nn.functional.linear(rows.double(), double.weight, double.bias))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Linear(13, 11)(torch.randn(N, 12))


@pytest.mark.parametrize(
    ("vectors", "vendor", "expected"),
    [("AVX512", "AuthenticAMD", True), ("AVX2", "AuthenticAMD", False), ("AVX512", "GenuineIntel", False)],
)
def test_whose_products_are_faster_depends_on_the_processor(vectors, vendor, expected, monkeypatch):
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: vectors)
    monkeypatch.setattr("builtins.open", lambda *arguments, **options: io.StringIO(f"x: 1\nvendor_id\t: {vendor}\n"))
    monkeypatch.setattr("sys.platform", "linux")
    decode_kernels.is_mkl_slow.cache_clear()
    try:
        assert decode_kernels.is_mkl_slow() == (
            expected and decode_kernels.ONEDNN and torch.backends.mkl.is_available()
        )
    finally:
        decode_kernels.is_mkl_slow.cache_clear()
