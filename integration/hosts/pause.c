/* Waits for SIGTERM or SIGINT, and ends. busybox's sleep ends by itself when CRIU interrupts it. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void end(int signal)
{
	(void)signal;
	_exit(0);
}

int main(void)
{
	signal(SIGTERM, end);
	signal(SIGINT, end);
	for (;;)
		pause();
}
