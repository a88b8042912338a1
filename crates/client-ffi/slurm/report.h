/*
 * report.h - what slurmctld's log is told, each thing once when it changes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef FAIRMESH_SLURM_REPORT_H
#define FAIRMESH_SLURM_REPORT_H

#include <fairmesh.h>

#include "parameters.h"

/* Says that the plug-in works with these parameters. What was said before is forgotten. */
void report_enabled(const struct parameters *parameters);

/* Says that it does nothing, and why. */
void report_disabled(const char *why);

/* Says how fresh the table is, where that is another than before. */
void report_freshness(const fairmesh_table *table, const struct parameters *parameters);

#endif
