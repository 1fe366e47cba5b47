"""What goes wrong in a simulated run. Each kind is a part that a simulation owns, and any mixture can happen in one run.

``failures`` crashes processes, lets some die for good and others be suspected; ``copies`` lets them come back on old copies of
disks and memories; ``reconfiguration`` changes the topology under way.

It imports the core and ``sim.fabric`` with what that stands on; no simulation. Exports ``copies``, ``failures`` and
``reconfiguration``.
"""
