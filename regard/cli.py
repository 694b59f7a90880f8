"""The command line: results on stdout, progress on stderr.

Exit codes: 0 all is well, 1 something failed, 2 the command cannot be carried out as given, 130 stopped by Ctrl-C.
Nothing heavy is imported before a command needs it, so that ``regard --help`` answers at once.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard import __version__
from regard.training.flags import add_tasks, given


def build_parser() -> argparse.ArgumentParser:
    """The commands and their options, as data that tests and shells can read."""
    parser = argparse.ArgumentParser(prog="regard", description="Attention you can compute, train and see.")
    parser.add_argument("--version", action="version", version=f"regard {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    text = "run every idea of the course notes, with its picture and whether its claim held"
    tour = commands.add_parser("tour", help=text, description=text.capitalize() + ".")
    tour.add_argument("--out", metavar="DIR", type=Path, default=Path("regard-tour"), help="default: %(default)s")
    tour.add_argument("--language", choices=("en", "zh"), default="en", help="default: %(default)s")
    tour.add_argument("--only", metavar="N,N…", type=_numbers, default=(), help="these claims alone, such as 17,18")
    tour.add_argument("--full", action="store_true", help="more seeds, longer training and larger data: some hours")
    tour.add_argument("--no-cache", action="store_true", help="compute anew also what an earlier tour has kept")
    tour.add_argument("--json", action="store_true", help="print the results for a program to read")
    tour.set_defaults(run=_tour)

    _add_curve(commands)
    _add_search(commands)

    text = "train a translator, a language model, or a classifier of texts or images"
    train = commands.add_parser("train", help=text, description=text.capitalize() + ".")
    add_tasks(train, _train)

    _add_uses(commands)

    _add_data(commands)

    text = "say whether regard works well on this machine, and what to do where it does not"
    doctor = commands.add_parser("doctor", help=text, description=text.capitalize() + ".")
    doctor.add_argument("--json", action="store_true", help="for a program to read")
    doctor.set_defaults(run=_doctor)
    return parser


def _add_curve(commands: Any) -> None:
    """A curve through columns of a file."""
    text = "draw a smooth curve through columns of a file, with its bandwidth chosen by leave-one-out"
    curve = commands.add_parser(
        "curve",
        help=text,
        description=text.capitalize() + ". Without a file: the noisy curve of the notes.",
        epilog="example: regard curve cars.csv --x weight --y consumption",
    )
    curve.add_argument("file", metavar="FILE", type=Path, nargs="?", help="CSV, or parquet where pyarrow is there")
    curve.add_argument("--x", metavar="COL", nargs="+", default=[], help="the columns to predict from")
    curve.add_argument("--y", metavar="COL", help="the column to predict")
    kernels = "gaussian, laplace, constant, boxcar, triangular, epanechnikov, biweight, triweight, tricube or cosine"
    curve.add_argument("--kernel", default="gaussian", help=f"{kernels}; default: %(default)s")
    curve.add_argument(
        "--bandwidth",
        metavar="RULE",
        default="loo",
        help="loo, gradient, silverman, or numbers joined by commas, one per column of x; default: %(default)s",
    )
    curve.add_argument("--degree", type=int, choices=(0, 1), default=0, help="1 for a local line; default: %(default)s")
    curve.add_argument("--predictions", metavar="CSV", type=Path, help="default: FILE-predictions.csv, here")
    curve.add_argument(
        "--picture", metavar="IMAGE", type=Path, help=".png, .svg, .pdf or .html; default: FILE-curve.png"
    )
    curve.add_argument("--json", action="store_true", help="for a program to read")
    curve.set_defaults(run=_curve)


def _add_search(commands: Any) -> None:
    """Texts that answer a question."""
    text = "find the lines of a file, or the paragraphs of a folder's files, that answer a question"
    search = commands.add_parser(
        "search",
        help=text,
        description=text.capitalize()
        + ", by the vectors of a sentence encoder. The percentage is a text's share of the attention among all texts.",
        epilog='example: regard search notes.txt "where does the cat sit?" --model FOLDER. MiniLM is such a folder: '
        "regard data fetch MiniLM brings it, and says where it is.",
    )
    search.add_argument("file", metavar="FILE", type=Path, help="a text file, or a folder of them")
    search.add_argument("question", metavar="QUESTION", help="in words")
    search.add_argument(
        "--model", metavar="FOLDER", type=Path, required=True, help="an encoder: regard's own, or a BERT such as MiniLM"
    )
    search.add_argument("--top", metavar="N", type=int, default=5, help="how many to show; default: %(default)s")
    search.add_argument("--json", action="store_true", help="for a program to read")
    search.set_defaults(run=_search)


def _add_data(commands: Any) -> None:
    """Real data sets and weights."""
    text = "list the real data sets and weights that can be had, or fetch one"
    data = commands.add_parser("data", help=text, description=text.capitalize() + ".")
    actions = data.add_subparsers(metavar="ACTION", dest="action", required=True)
    listing = actions.add_parser("list", help="what there is, how large, under which licence")
    fetch = actions.add_parser("fetch", help="bring one into the cache folder, and say where it is")
    fetch.add_argument("name", metavar="NAME", help="as `regard data list` shows it")
    for own in (listing, fetch):
        own.add_argument("--json", action="store_true", help="for a program to read")
        own.set_defaults(run=_data)


def _add_uses(commands: Any) -> None:
    """The commands that put a model to work."""
    text = "translate a text, or the lines of stdin"
    translate = _use(commands, "translate", text, "TEXT", 'regard translate regard-translate "the cat is on the mat"')
    translate.add_argument(
        "--beam-size", metavar="N", type=int, default=1, help="hypotheses at once; default: %(default)s"
    )
    translate.add_argument("--max-new-tokens", metavar="N", type=int, default=128, help="tokens; default: %(default)s")
    translate.set_defaults(run=_translate)

    text = "let a language model write on after a prompt, or after each line of stdin"
    generate = _use(commands, "generate", text, "PROMPT", 'regard generate regard-language "The for statement"')
    generate.add_argument("--max-new-tokens", metavar="N", type=int, default=128, help="tokens; default: %(default)s")
    generate.add_argument(
        "--temperature", metavar="X", type=float, default=0.0, help="0: the likeliest word each time (default)"
    )
    generate.add_argument("--top-k", metavar="N", type=int, help="choose among the likeliest N words")
    generate.add_argument("--top-p", metavar="X", type=float, help="choose among the likeliest words with this share")
    generate.add_argument("--seed", metavar="N", type=int, default=0, help="default: %(default)s")
    generate.set_defaults(run=_generate)

    text = "say the class of texts, of the lines of stdin, or of image files"
    classify = _use(commands, "classify", text, "INPUT", 'regard classify regard-text "a fine film"')
    classify.set_defaults(run=_classify)

    text = "measure a model on the test part of its data, or on other data"
    evaluate = commands.add_parser(
        "evaluate", help=text, description=text.capitalize() + ".", epilog="example: regard evaluate regard-translate"
    )
    evaluate.add_argument("model", metavar="MODEL", type=Path, help="a model folder")
    evaluate.add_argument("data", metavar="DATA", nargs="?", help="a file or folder, as for `regard train`")
    evaluate.add_argument("target", metavar="TARGET", nargs="?", help="the target's file, for a translator")
    evaluate.add_argument("--text", metavar="COL", help="the column of the texts; default: text")
    evaluate.add_argument("--label", metavar="COL", help="the column of their classes; default: label")
    evaluate.add_argument("--beam-size", metavar="N", type=int, help="hypotheses at once, for a translator; default: 1")
    evaluate.add_argument("--json", action="store_true", help="for a program to read")
    evaluate.set_defaults(run=_evaluate, optional=("data", "target"))

    text = "see what a model looks at, in the terminal or as a picture"
    look = commands.add_parser(
        "look",
        help=text,
        description=text.capitalize() + ".",
        epilog='example: regard look regard-translate "the cat is on the mat" --out looks.html',
    )
    look.add_argument("model", metavar="MODEL", type=Path, help="a model folder, regard's or Hugging Face's")
    look.add_argument("given", metavar="TEXT", help="to read or to translate; for a ViT or a ResNet, a picture")
    look.add_argument("--layer", metavar="N", type=int, help="one layer; default: the last one, in pictures all")
    look.add_argument("--head", metavar="N", type=int, help="one head of it; default: their mean, in pictures all")
    look.add_argument("--out", metavar="FILE", type=Path, help="write .html (a page), .png, .svg, .pdf or .json")
    look.set_defaults(run=_look)

    text = "open a page on this machine to see and touch attention"
    explore = commands.add_parser(
        "explore", help=text, description=text.capitalize() + ".", epilog="example: regard explore regard-translate"
    )
    explore.add_argument("models", metavar="MODEL", nargs="*", type=Path, help="model folders to look into")
    explore.add_argument(
        "--port", metavar="N", type=int, default=8_417, help="or the next free one; default: %(default)s"
    )
    explore.set_defaults(run=_explore)


def _use(commands: Any, name: str, text: str, inputs: str, example: str) -> argparse.ArgumentParser:
    """A command with a model, inputs, and ways to show what comes out."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text.capitalize() + ".", epilog=f"example: {example}"
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="a model folder")
    parser.add_argument("inputs", metavar=inputs, nargs="*", help="without any, lines are read from stdin")
    parser.add_argument("--show", action="store_true", help="show in the terminal what the model looked at")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each input")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = build_parser()
    options, late = parser.parse_known_args(arguments)
    if late:
        _take_late(parser, options, late)
    # At its first run matplotlib reads all fonts of the system, and would say so.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("regard: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our results has read enough, as in `regard doctor | head -n 1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a folder that cannot be written is the user's to mend; any other error is ours to see
        print(f"regard: {error}", file=sys.stderr)
        return 1
    return code


def _take_late(parser: argparse.ArgumentParser, options: argparse.Namespace, late: list[str]) -> None:
    """Give words that came after flags to the arguments they are meant for: argparse does not look that far."""
    words = [] if any(word.startswith("-") for word in late) else list(late)
    if hasattr(options, "inputs"):
        options.inputs = [*options.inputs, *words]
        words = []
    for name in getattr(options, "optional", ()):
        if words and getattr(options, name, None) is None:
            setattr(options, name, words.pop(0))
    if words or any(word.startswith("-") for word in late):
        parser.error(f"unrecognized arguments: {' '.join(words or late)}")


def _tour(options: argparse.Namespace) -> int:
    from regard import tour

    names = ("out", "language", "only", "full", "again")
    return tour.run(tour.Request(**{name: getattr(options, name) for name in names}, as_json=options.json))


def _numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers with commas between them, got {text!r}") from None


def _curve(options: argparse.Namespace) -> int:
    from regard import curve

    names = ("file", "x", "y", "kernel", "bandwidth", "degree", "predictions", "picture")
    return curve.run(curve.Request(**{name: getattr(options, name) for name in names}, as_json=options.json))


def _search(options: argparse.Namespace) -> int:
    from regard import search

    names = ("file", "question", "model", "top")
    return search.run(search.Request(**{name: getattr(options, name) for name in names}, as_json=options.json))


def _train(options: argparse.Namespace) -> int:
    from regard.training import command

    own = {"config": options.config, "resume": options.resume, "as_json": options.json}
    return command.run(options.task, given(options), Path(options.out), **own)


def _request(options: argparse.Namespace, **more: Any) -> Any:
    from regard import using

    return using.Request(options.model, options.inputs, as_json=options.json, show=options.show, options=more)


def _translate(options: argparse.Namespace) -> int:
    from regard import using

    return using.run_translate(_request(options, beam_size=options.beam_size, most=options.max_new_tokens))


def _generate(options: argparse.Namespace) -> int:
    from regard import using

    names = ("max_new_tokens", "temperature", "top_k", "top_p", "seed")
    return using.run_generate(_request(options, **{name: getattr(options, name) for name in names}))


def _classify(options: argparse.Namespace) -> int:
    from regard import using

    return using.run_classify(_request(options))


def _evaluate(options: argparse.Namespace) -> int:
    from regard import evaluating

    names = ("model", "data", "target", "text", "label", "beam_size")
    values = {name: getattr(options, name) for name in names}
    paths = {name: Path(values[name]) for name in ("data", "target") if values[name] is not None}
    return evaluating.run(evaluating.Request(**(values | paths), as_json=options.json))


def _look(options: argparse.Namespace) -> int:
    from regard import looking

    names = ("model", "given", "layer", "head", "out")
    return looking.run(looking.Request(**{name: getattr(options, name) for name in names}))


def _explore(options: argparse.Namespace) -> int:
    from regard.models.tensors import FolderError
    from regard.web import server

    try:
        return server.serve(options.models, options.port)
    except (FolderError, ValueError) as error:
        print(f"regard: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def _data(options: argparse.Namespace) -> int:
    from regard import datasets

    if options.action == "list":
        return datasets.run_list(as_json=options.json)
    return datasets.run_fetch(options.name, as_json=options.json)


def _doctor(options: argparse.Namespace) -> int:
    from regard import doctor

    return doctor.run(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
