#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "cli/command.h"

namespace roundoff::cli {

namespace {

// A signal handler can reach nothing but globals.
volatile std::sig_atomic_t graceful = 0;
volatile std::sig_atomic_t signals = 0;

extern "C" void on_signal(int) {
  signals = signals + 1;
  if (graceful == 0 || signals > 1) _exit(kInterrupted);
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  // A file that grows past its limit is an error of the write, with a message.
  std::signal(SIGXFSZ, SIG_IGN);
}

GracefulInterrupt::GracefulInterrupt() {
  signals = 0;
  graceful = 1;
}
GracefulInterrupt::~GracefulInterrupt() { graceful = 0; }
bool GracefulInterrupt::requested() const { return signals != 0; }

}  // namespace roundoff::cli
