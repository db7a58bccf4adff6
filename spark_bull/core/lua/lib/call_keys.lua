-- The ends of the keys of a parent of calls: its hash; the calls that are pending; values, reasons and details of those
-- that have ended; the calls whose jobs are kept when they end.
local CALL_KEYS = {'', ':dependencies', ':processed', ':failed', ':details', ':kept'}
