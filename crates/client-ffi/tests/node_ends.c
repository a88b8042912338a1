/*
 * node_ends.c - a scheduler whose node ends between two questions of its table.
 *
 * Asks for ann, says "asked", waits for a line, and asks for bob.
 */
#include <fairmesh.h>
#include <stdio.h>
#include <unistd.h>

/* Until the node has said something of the user. */
static int ask(const fairmesh_table *table, const char *user)
{
	struct fairmesh_name name = { .user = user };
	int code = FAIRMESH_NOT_YET;
	for (int tries = 0; code == FAIRMESH_NOT_YET && tries < 300; tries++) {
		code = fairmesh_table_factor(table, &name, NULL, NULL);
		usleep(code ? 100000 : 0);
	}
	return code;
}

int main(int argc, char **argv)
{
	fairmesh_table *table = fairmesh_table_open(argv[argc - 1], 3600000, 3600000, 2000);
	if (!table || ask(table, "ann"))
		return 1;
	puts("asked");
	fflush(stdout);
	getchar();
	int code = ask(table, "bob");
	fairmesh_table_close(table);
	return code;
}
