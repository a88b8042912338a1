/*
 * lookup.c - prints the factors of users, accounts and groups: an example of fairmesh.h.
 *
 *   cargo build --release -p fairmesh-client-ffi
 *   cc -I crates/client-ffi/include -o lookup crates/client-ffi/examples/lookup.c \
 *      target/release/libfairmesh_client_ffi.a -lpthread -ldl -lm
 *   ./lookup /run/fairmesh/lookup.sock ann:physics bob:biology:users carol
 */
#include <fairmesh.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *shown(const char *name)
{
	return name && *name ? name : "-";
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: %s SOCKET USER[:ACCOUNT[:GROUP[:QUEUE[:QOS]]]]...\n", argv[0]);
		return 2;
	}
	size_t count = argc - 2;
	struct fairmesh_name *names = calloc(count, sizeof(*names));
	uint32_t *factors = calloc(count, sizeof(*factors));
	char error[256];
	if (!names || !factors)
		return 1;
	for (size_t row = 0; row < count; row++) {
		names[row].user = strsep(&argv[row + 2], ":");
		names[row].account = strsep(&argv[row + 2], ":");
		names[row].group = strsep(&argv[row + 2], ":");
		names[row].queue = strsep(&argv[row + 2], ":");
		names[row].qos = argv[row + 2];
	}
	if (fairmesh_lookup(argv[1], names, count, 1000, factors, error, sizeof(error))) {
		fprintf(stderr, "no factors: %s\n", error);
		return 1;
	}
	for (size_t row = 0; row < count; row++) {
		printf("%s %s %s ", names[row].user, shown(names[row].account), shown(names[row].group));
		if (factors[row] == FAIRMESH_UNKNOWN)
			printf("unknown\n");
		else
			printf("%u\n", factors[row]);
	}
	return 0;
}
