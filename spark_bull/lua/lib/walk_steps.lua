-- Redis walks a list entry by entry to find one. This many steps are one script's share (about 5 ms).
local WALK_STEPS = 250000
