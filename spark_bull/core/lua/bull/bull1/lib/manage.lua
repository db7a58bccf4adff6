-- The fields of a job that is retried stay, as in Bull 1.
local function clear_outcome() end
