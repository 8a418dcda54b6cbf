/* The container that holds a pod's namespaces: it waits, and reaps what a shared process namespace leaves to it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_signal(int number)
{
    if (number != SIGCHLD)
        _exit(0);
    while (waitpid(-1, 0, WNOHANG) > 0)
        ;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, 0);
    sigaction(SIGINT, &action, 0);
    sigaction(SIGCHLD, &action, 0);
    for (;;)
        pause();
}
