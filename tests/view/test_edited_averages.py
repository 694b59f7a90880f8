"""Edits of averages that are not simply returned: written into memory, added at once, computed again later."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import regard
from tests.view.edited import HEADS, Written, alike, rows, run, zeroed


class Into(Written):
    """Averages that are written into memory, or added to other rows."""

    def __init__(self, added=False):
        super().__init__()
        self.added = added

    def forward(self, rows):
        query, key, value = (part.transpose(1, 2) for part in self.linear(rows).unflatten(-1, (3, HEADS, -1)).unbind(2))
        probabilities, mixed = (query @ key.mT * 8**-0.5).softmax(-1), torch.ones_like(value)
        if self.added:
            mixed = torch.baddbmm(*(part.flatten(0, 1) for part in (mixed, probabilities, value))).view_as(mixed)
        else:
            torch.matmul(probabilities, value, out=mixed)
        return self.out(mixed.transpose(1, 2).flatten(2))


def test_an_average_that_is_written_into_memory_is_edited_there():
    model = Into()
    with torch.no_grad():
        torch.testing.assert_close(
            run(model, lambda edit: edit.ablate(heads=1)), alike(model)(rows(), output=zeroed([1]))
        )


@pytest.mark.parametrize("gradients", [False, True])
def test_an_average_that_is_added_to_others_at_once_is_refused(gradients):
    model = Into(added=True)
    with torch.set_grad_enabled(gradients), pytest.raises(RuntimeError, match="added to others by the same operation"):
        run(model, lambda edit: edit.ablate(heads=1))
    with torch.no_grad(), regard.capture(model, operands=True) as seen:
        model(rows())
    torch.testing.assert_close(seen[0].output, seen[0].weights @ seen[0].value)


class Checkpointed(Written):
    def __init__(self, reentrant, **options):
        super().__init__(**options)
        self.reentrant = reentrant

    def forward(self, rows):
        rows = rows.requires_grad_(torch.is_grad_enabled())
        return checkpoint(super().forward, rows, use_reentrant=self.reentrant)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_that_an_edit_cannot_reach_are_refused(reentrant, fused):
    model = Checkpointed(reentrant, fused=fused)
    message = "CheckpointFunction" if reentrant else "again without the edit: switch it off"
    with pytest.raises(RuntimeError, match=message):
        run(model, lambda edit: edit.ablate(heads=1)).sum().backward()
    with torch.no_grad():
        output = run(model, lambda edit: edit.ablate(heads=1))
        torch.testing.assert_close(output, alike(model)(rows(), output=zeroed([1])))
