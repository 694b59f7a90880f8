"""The formulas of g2p in NumPy: letters into a GRU, its last state into another one, which says phonemes."""

import numpy

from regard.models.foreign import LETTERS, PHONEMES

LONGEST = 20


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def gru(x, state, arrays, side):
    """The next state, from the reset gate, the update gate and the candidate, in this order in the matrices."""
    from_input = numpy.split(arrays[f"{side}_w_ih"] @ x + arrays[f"{side}_b_ih"], 3)
    from_state = numpy.split(arrays[f"{side}_w_hh"] @ state + arrays[f"{side}_b_hh"], 3)
    reset, update = (sigmoid(from_input[gate] + from_state[gate]) for gate in (0, 1))
    candidate = numpy.tanh(from_input[2] + reset * from_state[2])
    return (1 - update) * candidate + update * state


def say(arrays, word):
    """The phonemes of a word, up to 20."""
    state = numpy.zeros(arrays["enc_w_hh"].shape[1], numpy.float32)
    for letter in [*word, "</s>"]:
        number = LETTERS.index(letter) if letter in LETTERS else LETTERS.index("<unk>")
        state = gru(arrays["enc_emb"][number], state, arrays, "enc")
    token, phonemes = PHONEMES.index("<s>"), []
    while len(phonemes) < LONGEST:
        state = gru(arrays["dec_emb"][token], state, arrays, "dec")
        token = int((arrays["fc_w"] @ state + arrays["fc_b"]).argmax())
        if PHONEMES[token] == "</s>":
            break
        phonemes.append(PHONEMES[token])
    return phonemes
