"""How drafts are made: one setting for every engine, and the rules that its numbers keep among themselves."""

from typing import Annotated

from pydantic import BeforeValidator, model_validator

from labkit.errors import SECRET_NAME
from labkit.fields import NOT_SHOWN, Model, Text, refuse, whole


def _argument(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or "\0" in str(value) or str(value) == "":
        raise refuse("a command-line argument (string or number)")
    flag = str(value).partition("=")[0]
    if flag.startswith("-") and SECRET_NAME.search(flag):  # its value would be recorded
        wanted = "no keys on the command line; name the variable in api_key_env, or export it in the shell"
        raise refuse(wanted, value=NOT_SHOWN)
    return str(value)


Argument = Annotated[str, BeforeValidator(_argument)]


DEFAULT_DRAFTS = 3  # of llama.cpp's drafters, where nobody says


class Speculative(Model):
    """Drafting: `steps` draft steps, `topk` branches each, `draft_tokens` verified per round (the root included).

    Without numbers it is the published setting, 3/1/4. NGRAM drafts from the text itself: it takes draft_tokens alone.
    `draft_model_path`: the draft's weights where they are not the model's own (EAGLE3, STANDALONE). `token_map`: what a
    draft may propose (a file, on the pocket engine also a count).
    """

    algorithm: Text = "NEXTN"
    steps: whole(1, 64) | None = None
    topk: whole(1, 64) | None = None
    draft_tokens: whole(2, 256) | None = None
    draft_model_path: Text | None = None
    token_map: Argument | None = None

    @model_validator(mode="before")
    @classmethod
    def _published(cls, value: object) -> object:
        """Either all of the numbers or none, which means 3/1/4."""
        if not isinstance(value, dict):
            return value
        if not str(value.get("algorithm", "NEXTN")).isupper():
            return value  # llama.cpp's own kinds, which have defaults of their own
        wanted = ("draft_tokens",) if value.get("algorithm") == "NGRAM" else ("steps", "topk", "draft_tokens")
        absent = [n for n in wanted if value.get(n) is None]
        if len(absent) < len(wanted):
            for name in absent:
                raise refuse("steps, topk and draft_tokens: all three or none", at=(name,), value=None)
        elif absent:
            value = {**value, **{n: {"steps": 3, "topk": 1, "draft_tokens": 4}[n] for n in wanted}}
        return value

    def check(self) -> None:
        """Numbers that fit each other: SGLang would rewrite others with only a warning. Raises fields.refuse."""
        at = ("speculative", "draft_tokens")
        if self.algorithm == "NGRAM":
            for name in ("steps", "topk"):
                if getattr(self, name) is not None:
                    raise refuse("nothing with NGRAM, which drafts without steps", at=("speculative", name))
        elif self.topk == 1 and self.draft_tokens != self.steps + 1:
            accepted = f"{self.steps + 1} (with topk 1 the drafts form a chain: steps + 1)"
            raise refuse(accepted, at=at, value=self.draft_tokens)
        elif self.topk > 1 and self.draft_tokens > self.largest:
            accepted = f"at most {self.largest}, all that {self.steps} steps of topk {self.topk} propose"
            raise refuse(accepted, at=at, value=self.draft_tokens)

    @property
    def from_text(self) -> bool:
        """Whether drafts are looked up in the text so far, which costs no pass over any weights."""
        return self.algorithm.lower().startswith("ngram")

    def words(self) -> str:
        """Where drafts come from."""
        if self.algorithm == "ngram-mod":
            return "looked up in this text and in earlier answers (ngram-mod), which takes no pass over any weights"
        if self.from_text:
            return f"looked up in the text so far ({self.algorithm}), which takes no pass over any weights"
        if self.draft_model_path is not None:
            return f"made by a model of their own ({self.algorithm}), whose weights each draft step reads"
        return f"made by a layer of the model itself ({self.algorithm})"

    @property
    def verified(self) -> int:
        """Positions that a round verifies, at most."""
        return self.draft_tokens or (self.steps or DEFAULT_DRAFTS) + 1

    @property
    def most(self) -> int:
        """Tokens that a round yields if every draft is right: a tree's drafts are right along one branch."""
        return (self.steps or self.verified - 1) + 1

    @property
    def largest(self) -> int:
        """Tokens that a verify step can check at most, the root included: a chain's steps + 1, or the whole tree."""
        return self.steps + 1 if self.topk == 1 else 1 + self.topk + (self.steps - 1) * self.topk**2

    def numbers(self) -> str:
        """steps/topk/draft tokens, as in 3/1/4."""
        return "/".join(str(n) for n in (self.steps, self.topk, self.draft_tokens) if n is not None)
