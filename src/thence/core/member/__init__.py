"""One process of a fabric: ``member.step(input, now) -> Ready``, and the parts that it consists of.

May import all of ``core``. ``core.member.member.Member``, ``core.member.limits.MemberOptions`` and ``core.member.contract`` are
what others make and pass. They may ask the parts of a member: its attachment, delivery log, admission, forwarder, reconfigurer,
survivor and spill ways. Exports ``codec``, ``contract``, ``limits``, ``member`` and ``spill``.
"""
