"""One process of a fabric: ``member.step(input, now) -> Ready``, and the parts that it consists of.

May import all of ``core``. ``core.member.member.Member`` and ``core.member.contract`` are what others use.
"""
