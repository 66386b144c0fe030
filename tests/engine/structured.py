"""What clients ask structured answers in: nested, recursive, with unions, lists and words."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class Leaf(BaseModel):
    name: str
    weight: float | None


class Tree(BaseModel):
    label: Literal["oak", "elm"]
    leaves: list[Leaf]
    best: Leaf | int
    children: list[Tree]


class Flat(BaseModel):
    label: Literal["oak", "elm"]
    leaves: list[Leaf]
