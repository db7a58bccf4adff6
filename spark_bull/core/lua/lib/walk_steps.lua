-- Maximum number of list entries that one script lets Redis search (about 5 ms).
local WALK_STEPS = 250000
