-- Fairmesh: is there credit for a job that is being submitted?
--
-- For job_submit.lua; it asks the node over its Unix socket, within slurmctld and without a program, by the module
-- `socket.unix` (Debian: lua-socket). What it can tell of a job at submission is the least that it will cost; what
-- it does cost is held when it starts, by PrologSlurmctld.
--
-- No call takes longer than DEADLINE. After one that got no answer nobody is asked for PAUSE, so a node that
-- hangs costs slurmctld one deadline in each.

local SOCKET = "{SOCKET}"
local CLUSTER = "{CLUSTER}"
local ON_SILENCE = "{ON_SILENCE}"
local DEADLINE = 1 -- seconds
local PAUSE = 10 -- seconds
local UNLIMITED_S = 366 * 86400

local M = {}
local silent_until = 0
local groups = {}

-- A number that Slurm has set; it stands for "none" and "without a limit" by the largest ones.
local function number(value)
	if type(value) == "number" and value >= 0 and value < 4294967294 then
		return value
	end
end

local function quoted(text)
	return '"' .. text:gsub('[%c"\\]', function(c)
		return string.format("\\u%04x", c:byte())
	end) .. '"'
end

local function object(fields)
	local words = {}
	for name, value in pairs(fields) do
		if type(value) == "number" then
			words[#words + 1] = string.format('"%s":%d', name, value)
		else
			words[#words + 1] = string.format('"%s":%s', name, quoted(value))
		end
	end
	return "{" .. table.concat(words, ",") .. "}"
end

-- The name of a group, asked for once.
local function group_of(gid)
	if gid and groups[gid] == nil then
		local pipe = io.popen(string.format("timeout 1 getent group %d", gid))
		local line = pipe and pipe:read("*l") or ""
		if pipe then
			pipe:close()
		end
		groups[gid] = line:match("^([^:]+):") or false
	end
	return groups[gid] or nil
end

-- How long a job may run, in seconds: what it asks for, else what its partition says.
local function wall_s(job, partitions)
	local minutes = number(job.time_limit)
	if minutes == nil and job.time_limit ~= slurm.INFINITE then
		local name = job.partition and job.partition:match("^[^,]+")
		for of, partition in pairs(partitions) do
			if of == name or (name == nil and partition.flag_default == 1) then
				minutes = number(partition.default_time) or number(partition.max_time)
			end
		end
	end
	return minutes and math.max(minutes * 60, 1) or UNLIMITED_S
end

-- GPUs in lists such as `gres:gpu:a100:2,gres:craynetwork:1`.
local function gpus_in(list)
	local sum = 0
	for word in (list or ""):gmatch("[^,]+") do
		local rest = word:match("gpu(.*)$")
		if rest then
			sum = sum + (tonumber(rest:match("[:=](%d+)$")) or 1)
		end
	end
	return sum
end

local function asked_for(job, partitions)
	local nodes = math.max(number(job.min_nodes) or 1, 1)
	local tasks = math.max(number(job.num_tasks) or 1, 1)
	local cores = math.max(number(job.min_cpus) or 1, nodes)
	local mem = (number(job.min_mem_per_node) or 0) * nodes
	if mem == 0 then
		mem = (number(job.min_mem_per_cpu) or 0) * cores
	end
	local gpus = math.max(
		gpus_in(job.tres_per_job),
		gpus_in(job.tres_per_node) * nodes,
		gpus_in(job.tres_per_task) * tasks
	)
	return {
		cluster = CLUSTER,
		job = "submitted",
		user = job.user_name,
		account = job.account or job.default_account,
		group = group_of(number(job.group_id)),
		queue = job.partition,
		cores = cores,
		nodes = nodes,
		gpus = gpus,
		mem_mib = math.floor(mem),
		wall_s = wall_s(job, partitions),
	}
end

-- Status and body of the node's answer; nothing and why where it gave none.
local function ask(body)
	local found, unix = pcall(require, "socket.unix")
	if not found then
		return nil, "no Lua module socket.unix: install lua-socket"
	end
	local stream = type(unix) == "table" and unix.stream or unix
	local connection, why = stream()
	if connection == nil then
		return nil, why
	end
	-- Of all that follows together.
	connection:settimeout(DEADLINE, "t")
	local ok
	ok, why = connection:connect(SOCKET)
	if ok then
		ok, why = connection:send(
			"POST /v1/quota/check HTTP/1.0\r\nHost: fairmesh\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
		)
	end
	local answer
	if ok then
		answer, why = connection:receive("*a")
	end
	connection:close()
	if answer == nil then
		return nil, why
	end
	local status, rest = answer:match("^HTTP/1%.%d (%d+).-\r\n\r\n(.*)$")
	if status == nil then
		return nil, "what came is not HTTP"
	end
	return tonumber(status), rest
end

-- The text of a field of a JSON object.
local function text(body, name)
	local at = select(2, body:find('"' .. name .. '":"', 1, true))
	if at == nil then
		return nil
	end
	local words = {}
	local escaped = false
	for c in body:sub(at + 1):gmatch(".") do
		if escaped or (c ~= "\\" and c ~= '"') then
			words[#words + 1] = c
			escaped = false
		elseif c == "\\" then
			escaped = true
		else
			break
		end
	end
	return table.concat(words)
end

local function silent(why)
	silent_until = os.time() + PAUSE
	slurm.log_error("fairmesh: whether quotas cover jobs is not known (%s): %s", tostring(why), ON_SILENCE)
end

-- slurm.SUCCESS where the job may be submitted. Otherwise its user is told why.
function M.check(job, partitions)
	local status, body
	if os.time() >= silent_until then
		local request = object(asked_for(job, partitions))
		status, body = ask(request)
		if status ~= 200 and status ~= 422 then
			silent(status and ("HTTP status " .. status) or body)
			status = nil
		end
	end
	if status == 200 then
		local verdict = text(body, "verdict")
		if verdict == "waiting" or body:find('"runs":true', 1, true) then
			return slurm.SUCCESS
		end
		local why = text(body, "message") or verdict or "no credit"
		slurm.log_user("%s", why)
	elseif status == 422 then
		slurm.log_user("%s", text(body, "error") or "no credit")
	elseif ON_SILENCE == "refuse" then
		slurm.log_user("%s", "the site's Fairmesh node does not say whether this job has credit; try again later")
	else
		return slurm.SUCCESS
	end
	return slurm.ESLURM_ACCOUNTING_POLICY
end

return M
