-- The field of a job that each start sets.
local STARTED_FIELD = 'lockAcquired'
