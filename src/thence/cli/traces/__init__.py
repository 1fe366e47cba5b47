"""Commands for traces and simulated runs: audit, judge, import, simulate, explore, scenario, study and orderings.

May import what ``cli`` may. Exports nothing.
"""
