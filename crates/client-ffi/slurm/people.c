/*
 * people.c - the names of users and groups, by uid and gid. See people.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "people.h"

#include <grp.h>
#include <inttypes.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

/* Longest entry of the name service that is read: a group's lists its members. What an entry does not
 * fill costs no memory. */
#define ENTRY_BYTES (16 << 20)

/* The longest pause before a name that is missing is asked for again. */
#define RETRY_US 60000000L

/* In the key of a group, beside its gid. */
#define IS_GROUP (UINT64_C(1) << 32)

struct person {
	uint64_t key; /* uid, or gid and IS_GROUP */
	/* NULL until they are known, and never changed after: somebody may hold them. */
	char *name;
	char *number; /* in its place */
	long first_us; /* when the name service first answered; 0 before */
	long last_us; /* and last */
};

/* Sorted by key. */
static struct person *people;
static size_t people_count, people_room, people_unasked;
static pthread_mutex_t people_lock = PTHREAD_MUTEX_INITIALIZER;

/* Where the key is, or belongs. */
static size_t place_of(uint64_t key)
{
	size_t low = 0, high = people_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (people[middle].key < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void note(size_t place, uint64_t key)
{
	if (people_count == people_room) {
		size_t room = people_room ? 2 * people_room : 256;
		struct person *larger = realloc(people, room * sizeof(*people));
		if (!larger)
			return; /* noted another time */
		people = larger;
		people_room = room;
	}
	memmove(&people[place + 1], &people[place], (people_count - place) * sizeof(*people));
	people[place] = (struct person){ .key = key };
	people_count++;
	people_unasked++;
}

static const char *name_of(uint64_t key)
{
	const char *name = NULL;
	pthread_mutex_lock(&people_lock);
	size_t place = place_of(key);
	if (place < people_count && people[place].key == key)
		name = people[place].name ? people[place].name : people[place].number;
	else
		note(place, key);
	pthread_mutex_unlock(&people_lock);
	return name;
}

const char *people_user(uid_t uid)
{
	return name_of(uid);
}

const char *people_group(gid_t gid)
{
	return name_of(IS_GROUP | gid);
}

bool people_waiting(void)
{
	pthread_mutex_lock(&people_lock);
	bool waiting = people_unasked > 0;
	pthread_mutex_unlock(&people_lock);
	return waiting;
}

size_t people_numbered(void)
{
	size_t count = 0;
	pthread_mutex_lock(&people_lock);
	for (size_t place = 0; place < people_count; place++)
		count += people[place].number && !people[place].name;
	pthread_mutex_unlock(&people_lock);
	return count;
}

/* Whether to ask for the name: of one that is missing after as long again as it has been. */
static bool is_due(const struct person *person, long now)
{
	long pause = person->last_us - person->first_us;
	return !person->name && now - person->last_us >= (pause < RETRY_US ? pause : RETRY_US);
}

/* The next to ask for, from this key on. */
static bool next_due(uint64_t from, uint64_t *key)
{
	bool found = false;
	long now = now_us();
	pthread_mutex_lock(&people_lock);
	for (size_t place = place_of(from); !found && place < people_count; place++)
		if (is_due(&people[place], now)) {
			*key = people[place].key;
			found = true;
		}
	pthread_mutex_unlock(&people_lock);
	return found;
}

/* Asks the name service; NULL where it has no such entry. False where it failed. */
static bool ask(uint64_t key, char *buffer, const char **name)
{
	struct passwd user, *its = NULL;
	struct group group, *their = NULL;
	uint32_t number = (uint32_t)key;
	int failed = key & IS_GROUP ? getgrgid_r(number, &group, buffer, ENTRY_BYTES, &their) :
				      getpwuid_r(number, &user, buffer, ENTRY_BYTES, &its);
	*name = their ? their->gr_name : its ? its->pw_name : NULL;
	return *name || !failed;
}

static void name_one(uint64_t key, char *buffer)
{
	const char *found;
	char number[16];
	if (!ask(key, buffer, &found))
		return;
	long now = now_us();
	snprintf(number, sizeof(number), "%" PRIu32, (uint32_t)key);
	pthread_mutex_lock(&people_lock);
	struct person *person = &people[place_of(key)];
	if (!person->first_us) {
		person->first_us = now;
		people_unasked--;
	}
	person->last_us = now;
	if (found)
		person->name = strdup(found);
	else if (!person->number && now - person->first_us >= NUMBER_AFTER_S * 1000000L)
		person->number = strdup(number);
	pthread_mutex_unlock(&people_lock);
}

void people_resolve(void)
{
	uint64_t key = 0;
	char *buffer = NULL;
	for (; next_due(key, &key) && (buffer || (buffer = malloc(ENTRY_BYTES))); key++)
		name_one(key, buffer);
	free(buffer);
}

void people_forget(void)
{
	pthread_mutex_lock(&people_lock);
	for (size_t place = 0; place < people_count; place++) {
		free(people[place].name);
		free(people[place].number);
	}
	free(people);
	people = NULL;
	people_count = people_room = people_unasked = 0;
	pthread_mutex_unlock(&people_lock);
}
