/*
 * parameters.c - PrioritySiteFactorParameters, read and checked. See parameters.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number that may be given, with its place, default and bounds. */
struct number {
	const char *key;
	size_t place;
	int64_t low;
	int64_t high;
};

static const struct number numbers[] = {
	{ "weight", offsetof(struct parameters, weight), 0, WEIGHT_MAX },
	{ "importance", offsetof(struct parameters, importance), 0, FAIRMESH_IMPORTANCE_POINTS_MAX },
	{ "min", offsetof(struct parameters, min), -POINTS_MAX, POINTS_MAX },
	{ "max", offsetof(struct parameters, max), -POINTS_MAX, POINTS_MAX },
	{ "interval", offsetof(struct parameters, interval_s), 1, 3600 },
	{ "old", offsetof(struct parameters, old_s), 1, 30 * 86400 },
	{ "batch", offsetof(struct parameters, batch), 1, 100000 },
};

static int take_socket(const char *value, struct parameters *parameters, char *error, size_t size)
{
	if (value[0] != '/') {
		snprintf(error, size, "socket: `%s` is not an absolute path", value);
		return -1;
	}
	if (strlen(value) >= SOCKET_BYTES) {
		snprintf(error, size, "socket: the path is longer than %d bytes", SOCKET_BYTES - 1);
		return -1;
	}
	strcpy(parameters->socket, value);
	return 0;
}

static int take_number(const struct number *number, const char *value,
		       struct parameters *parameters, char *error, size_t size)
{
	char *end;
	long long parsed = strtoll(value, &end, 10);
	if (end == value || *end || parsed < number->low || parsed > number->high) {
		snprintf(error, size, "%s: `%s` is not a whole number from %lld to %lld", number->key,
			 value, (long long)number->low, (long long)number->high);
		return -1;
	}
	*(int64_t *)((char *)parameters + number->place) = parsed;
	return 0;
}

static int take(char *word, struct parameters *parameters, char *error, size_t size)
{
	char *value = strchr(word, '=');
	if (!value) {
		snprintf(error, size, "`%s` is not key=value", word);
		return -1;
	}
	*value++ = '\0';
	if (!strcmp(word, "socket"))
		return take_socket(value, parameters, error, size);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!strcmp(word, numbers[i].key))
			return take_number(&numbers[i], value, parameters, error, size);
	snprintf(error, size,
		 "`%s` is none of socket, weight, importance, min, max, interval, old, batch", word);
	return -1;
}

int parameters_parse(const char *text, struct parameters *parameters, char *error, size_t size)
{
	*parameters = (struct parameters){
		.socket = "/run/fairmesh/lookup.sock",
		.weight = 1000000000,
		.importance = 200,
		.min = 0,
		.max = POINTS_MAX,
		.interval_s = 5,
		.old_s = 300,
		.batch = 1000,
	};
	char *copy = strdup(text ? text : ""), *rest = copy, *word;
	int outcome = copy ? 0 : -1;
	if (!copy)
		snprintf(error, size, "out of memory");
	while (!outcome && (word = strsep(&rest, ",")))
		if (*word)
			outcome = take(word, parameters, error, size);
	free(copy);
	if (!outcome && parameters->min > parameters->max) {
		snprintf(error, size, "min (%lld) is above max (%lld)", (long long)parameters->min,
			 (long long)parameters->max);
		outcome = -1;
	}
	return outcome;
}

struct fairmesh_scale parameters_scale(const struct parameters *parameters)
{
	return (struct fairmesh_scale){
		.weight = (uint32_t)parameters->weight,
		.importance = (uint32_t)parameters->importance,
		.min = parameters->min,
		.max = parameters->max,
	};
}
