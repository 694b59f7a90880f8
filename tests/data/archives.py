"""Archives of every kind, made of names and contents."""

import io
import shutil
import subprocess
import tarfile
import zipfile

import pytest


def wheel(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


def npm(path, files):
    with tarfile.open(path, "w:gz") as packed:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return path


def debian(path, files):
    root = path.with_suffix("")
    control = "Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: tiny\n"
    for name, content in (files | {"DEBIAN/control": control.encode()}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, path], check=True, capture_output=True)
    shutil.rmtree(root)
    return path


needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="Debian packages are made by dpkg-deb")
