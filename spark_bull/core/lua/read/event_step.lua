-- Counts events in a range of ids, up to a limit.
-- @returns {number of events, id of the last one or ''}

local entries = call('XRANGE', key.events, '(' .. arg.after, arg.stop, 'COUNT', arg.limit)
return {#entries, #entries > 0 and entries[#entries][1] or ''}
