// Ctrl-C: at once for most commands, at the next step's end for a run that has something to save.
#pragma once

#include "kernels/base/check.h"

namespace roundoff::cli {

// Thrown by a command that stopped because it was asked to; the program exits with status 130.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// SIGINT, SIGTERM and SIGHUP end the program with status 130 from here on.
void install_interrupt_handler();

// While one lives, the first signal only makes requested() true; a second ends the program.
class GracefulInterrupt {
 public:
  GracefulInterrupt();
  ~GracefulInterrupt();
  GracefulInterrupt(const GracefulInterrupt&) = delete;
  GracefulInterrupt& operator=(const GracefulInterrupt&) = delete;
  bool requested() const;
};

}  // namespace roundoff::cli
