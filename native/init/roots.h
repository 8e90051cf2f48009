/* Services: processes whose root directory is a directory of the sandbox. */
#ifndef TVSNAP_ROOTS_H
#define TVSNAP_ROOTS_H

/* Mounts directories at other places of the sandbox; see TVSNAP_BINDS in init.c. `pairs`: what and where, a line each. */
void bind_directories(char *pairs);

/* tvsnap-init enter, tvsnap-init begin: what follows that word. Each returns an exit status if it fails. */
int enter_root(int argc, char **argv);
int begin_service(int argc, char **argv);

#endif
