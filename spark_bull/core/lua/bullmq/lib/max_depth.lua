-- Maximum number of levels of children that a script walks: a sequence of jobs can have more than Lua's stack.
local MAX_DEPTH = 1000
