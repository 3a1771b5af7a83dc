#!/usr/bin/env python3
"""Draws docs/figures/speed.svg from the tables of docs/internals/benchmarks.md, measured.svg from lines of a node's log of
operations (`stasis log --json`, measured.jsonl beside it), and how-it-works.svg."""

import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
TEXT, GREY, BLUE, ORANGE, GREEN = "#1b2733", "#8896a5", "#4a6fa5", "#b87a2a", "#4f8a5b"
FILLS = {GREY: "#f6f7f9", BLUE: "#eef3fa", ORANGE: "#fdf0e0", GREEN: "#e8f4ea"}


class Drawing:
    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif" role="img">',
            f"<title>{title}</title>",
            '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0 10 5 0 10z" fill="{BLUE}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def text(self, x, y, words, size=12, weight=400, anchor="middle", colour=TEXT):
        self.parts.append(
            f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}" fill="{colour}">{words}</text>'
        )

    def box(self, x, y, width, height, colour, lines=()):
        self.parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5" '
            f'fill="{FILLS[colour]}" stroke="{colour}" stroke-width="1.3"/>'
        )
        top = y + height / 2 - 8 * (len(lines) - 1) + 4
        for at, line in enumerate(lines):
            self.text(x + width / 2, top + 16 * at, line, *((13, 600) if at == 0 else (11,)))

    def bar(self, x, y, width, height, colour):
        self.parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.1f}" height="{height}" rx="2" fill="{colour}"/>'
        )

    def arrow(self, x1, y1, x2, y2):
        self.parts.append(
            f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="{BLUE}" '
            'stroke-width="1.5" marker-end="url(#a)"/>'
        )

    def write(self, name):
        (DOCS / "figures" / name).write_text("\n".join([*self.parts, "</svg>", ""]))


def how_it_works():
    drawing = Drawing(
        960, 344,
        "An engine asks for a checkpoint: the job is locked, its GPU contents go to host memory, CRIU "
        "dumps it, and the GPU is free. A restore does the reverse. A keeper undoes what is killed",
    )
    left, width, gap = 92, 112, 11
    places = [left + at * (width + gap) for at in range(7)]
    end = places[6] + width
    for y, lane in [(36, "engine"), (118, "stasis"), (200, "GPU"), (248, "job"), (302, "keeper")]:
        drawing.text(80, y + 4, lane, 13, 600, "end")
    commands = "podman, ctr, Docker or kubelet: checkpoint"
    drawing.box(left, 18, places[2] + width - left, 36, GREY, [commands])
    drawing.box(places[4], 18, end - places[4], 36, GREY, ["restore, here or on another host"])
    steps = [
        (ORANGE, "1  lock", "all CUDA", "processes"),
        (ORANGE, "2  GPU out", "contents to", "host memory"),
        (BLUE, "3  dump", "runc or crun,", "CRIU"),
        (GREY, "image", "directory, archive", "or registry"),
        (BLUE, "4  restore", "runc or crun,", "CRIU"),
        (ORANGE, "5  GPU back", "on any GPU of", "the product"),
        (ORANGE, "6  unlock", "once all is", "verified"),
    ]
    for x, (colour, *lines) in zip(places, steps):
        drawing.box(x, 84, width, 68, colour, lines)
    for x in places[1:]:
        drawing.arrow(x - gap, 118, x - 1, 118)
    for x in (places[1], places[5]):
        drawing.arrow(x + width / 2, 54, x + width / 2, 83)
    freed, used = places[1] + width * 0.8, places[5] + width * 0.2
    drawing.box(left, 182, freed - left, 36, ORANGE, ["has the job's contents"])
    drawing.box(freed, 182, used - freed, 36, GREEN, ["free for another job"])
    drawing.box(used, 182, end - used, 36, ORANGE, ["the job's again"])
    gone, back = places[2] + width, places[4]
    on = places[6]
    drawing.box(left, 230, gone - left, 36, GREY, ["stands still for seconds"])
    drawing.box(gone, 230, on - gone, 36, GREEN, ["ended; with --leave-running it goes on"])
    drawing.box(on, 230, end - on, 36, GREY, ["goes on"])
    drawing.box(left, 284, gone - left, 36, BLUE, ["undoes a checkpoint that is killed"])
    drawing.box(back, 284, end - back, 36, BLUE, ["cleans up a restore that is killed"])
    drawing.write("how-it-works.svg")


def rows_below(text, heading):
    """The cells of the first table below a heading, by the first cell of each row."""
    table = text.split(f"\n## {heading}\n")[1]
    table = re.search(r"(?:^\|.*\n)+", table, re.M).group()
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows}


def first(cell):
    return float(re.match(r"[\d.]+", cell).group())


def speed():
    text = (DOCS / "internals/benchmarks.md").read_text()
    ours, theirs = rows_below(text, "Checkpoints from files"), rows_below(text, "By the driver and CRIU")
    plugin = re.search(r"own CUDA plugin.*?checkpoint (\d+\.\d+), restore (\d+\.\d+)", text, re.S)
    eight, large = [{name: first(row[at]) for name, row in ours.items() if row[at][:1].isdigit()} for at in (0, 1)]
    goes_on, ends, restore = (float(cell) for cell in theirs["8 GiB"][:3])
    stasis, with_plugin, alone = "stasis", "CRIU 4.2 with its CUDA plugin", "driver and CRIU, called by stasis"
    groups = [
        ("checkpoint, the job ends", [(stasis, eight["ends"]), (with_plugin, float(plugin[1])), (alone, ends)]),
        ("checkpoint, the job goes on", [(stasis, eight["goes on, with its resume"]), (alone, goes_on)]),
        ("restore", [(stasis, eight["restore"]), (with_plugin, float(plugin[2])), (alone, restore)]),
        ("the same with 64 GiB", [
            ("stasis, the job ends", large["ends"]),
            ("stasis, the job goes on", large["goes on, with its resume"]),
            ("stasis, restore", large["restore"])]),
    ]
    height = 60 + sum(22 * len(bars) + 18 for _, bars in groups)
    drawing = Drawing(860, height, "Seconds of checkpoints and restores on an H200, beside the driver and CRIU")
    drawing.text(20, 28, "Seconds with 8 GiB on one H200", 15, 600, "start")
    drawing.text(20, 46, "whole commands (with CRIU's plugin: of one process), driver 580.159.04, November 2026; shorter is better", 11, 400, "start")
    colours = {stasis: BLUE, with_plugin: ORANGE, alone: GREY}
    y, left, scale = 66, 220, 26
    for name, bars in groups:
        drawing.text(left - 12, y + 11 * len(bars) + 2, name, 12, 600, "end")
        for who, seconds in bars:
            drawing.bar(left, y, seconds * scale, 16, colours.get(who, BLUE))
            drawing.text(left + seconds * scale + 6, y + 12, f"{seconds:g}  {who}", 11, 400, "start")
            y += 22
        y += 18
    drawing.write("speed.svg")


def phases_of(operation):
    """Name, beginning, seconds and bytes of each phase of 10 ms or more; parts of phases are left out."""
    begin = 0.0
    for phase in operation["phases"]:
        if ": " in phase["name"]:
            continue
        if phase["seconds"] >= 0.01:
            yield phase["name"], begin, phase["seconds"], phase.get("bytes", 0)
        begin += phase["seconds"]


def measured():
    lines = (DOCS / "figures/measured.jsonl").read_text().splitlines()
    operations = [(line["operation"], list(phases_of(line))) for line in map(json.loads, lines)]
    left, scale, row = 180, 560 / max(at + took for _, phases in operations for _, at, took, _ in phases), 22
    height = 52 + sum(row * len(phases) + 40 for _, phases in operations)
    drawing = Drawing(960, height, "The phases of a checkpoint and a restore of 64 GiB on an H200, in seconds")
    drawing.text(20, 28, "64 GiB on one H200, GPU contents on a tmpfs: phases in seconds", 15, 600, "start")
    y = 56
    for operation, phases in operations:
        drawing.text(20, y + 12, operation, 13, 600, "start")
        y += row
        for name, at, took, size in phases:
            colour = ORANGE if name.startswith("gpu") else BLUE
            drawing.text(left - 12, y + 12, name, 12, 400, "end")
            drawing.bar(left + at * scale, y, max(took * scale, 1), 16, colour)
            moved = f", {size / 2**30:.0f} GiB" if size > 2**30 else ""
            drawing.text(left + (at + took) * scale + 6, y + 12, f"{took:.2f}{moved}", 11, 400, "start")
            y += row
        y += 40 - row
    drawing.write("measured.svg")


how_it_works()
speed()
measured()
