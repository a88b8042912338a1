/*
 * report.c - what slurmctld's log is told, each thing once when it changes. See report.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "report.h"

#include "src/common/slurm_xlator.h"

#include "src/common/log.h"

#include <inttypes.h>
#include <stdbool.h>

#include "people.h"

/* Every line begins with it, so that `grep site_factor/fairmesh` finds them all. */
#define NAME "site_factor/fairmesh: "

/* What was said last. */
static struct {
	bool is_away; /* of the node before its first answer */
	bool is_answering;
	bool is_old;
	bool has_old_data;
	bool is_full;
	bool has_numbers;
} said;

void report_enabled(const struct parameters *parameters)
{
	memset(&said, 0, sizeof(said));
	info(NAME "asks %s every %" PRId64 " s; the highest factor is worth %" PRId64
		  " points, between %" PRId64 " and %" PRId64,
	     parameters->socket, parameters->interval_s, parameters->weight, parameters->min,
	     parameters->max);
}

void report_disabled(const char *why)
{
	error(NAME "DISABLED: %s. Jobs keep the site factors that they have. Mend it in slurm.conf, "
		   "then `scontrol reconfigure`",
	      why);
}

/* Before the first answer. */
static void report_away(const fairmesh_table *table, const struct parameters *parameters)
{
	char why[256];
	if (said.is_away || !fairmesh_table_error(table, why, sizeof(why)))
		return;
	said.is_away = true;
	error(NAME "NO ANSWER yet from %s: %s. Jobs keep the site factors that they have; trying on",
	      parameters->socket, why);
}

static void report_old(const fairmesh_table *table, uint64_t age_ms)
{
	char why[256];
	if (said.is_old)
		return;
	said.is_old = true;
	if (!fairmesh_table_error(table, why, sizeof(why)))
		snprintf(why, sizeof(why), "it does not say why");
	error(NAME "DATA IS OLD: the node has not answered for %" PRIu64
		   " s: %s. The last factors stay; trying on",
	      age_ms / 1000, why);
}

static void report_answering(const struct fairmesh_state *state)
{
	if (said.is_answering && !said.is_old)
		return;
	info(NAME "%s; it knows the usage of %" PRIu32 " of %" PRIu32 " sites",
	     said.is_answering ? "the node answers again" : "the node answers", state->sites_known,
	     state->sites_total);
	said.is_answering = true;
	said.is_away = said.is_old = false;
}

/* The node answers, but on old ground. */
static void report_data(const struct fairmesh_state *state, const struct parameters *parameters)
{
	bool is_old = state->view_age_ms > (uint64_t)parameters->old_s * 1000;
	if (is_old && !said.has_old_data)
		error(NAME "DATA IS OLD: the node answers, but what it knows of the site longest "
			   "silent is %" PRIu64 " s old",
		      state->view_age_ms / 1000);
	else if (!is_old && said.has_old_data)
		info(NAME "the node's data of all sites are fresh again");
	said.has_old_data = is_old;
}

static void report_room(const struct fairmesh_state *state)
{
	bool is_full = state->names >= FAIRMESH_TABLE_NAMES_MAX;
	if (is_full && !said.is_full)
		error(NAME "the table of users, accounts and groups is full (%" PRIu32
			   "): jobs of others keep the site factors that they have",
		      state->names);
	said.is_full = is_full;
}

static void report_numbers(void)
{
	size_t numbered = people_numbered();
	if (numbered && !said.has_numbers)
		error(NAME "%zu users or groups have no name and are asked for by their numbers: "
			   "is the name service (sssd, LDAP) up on this machine?",
		      numbered);
	said.has_numbers = numbered;
}

void report_freshness(const fairmesh_table *table, const struct parameters *parameters)
{
	struct fairmesh_state state;
	if (fairmesh_table_state(table, &state) != FAIRMESH_OK)
		return;
	report_room(&state);
	report_numbers();
	if (state.state == FAIRMESH_STATE_NEVER) {
		report_away(table, parameters);
	} else if (state.state == FAIRMESH_STATE_OLD) {
		report_old(table, state.answer_age_ms);
	} else {
		report_answering(&state);
		report_data(&state, parameters);
	}
}
