#include "engine/io/file.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/io/bytes.h"
#include "tests/engine/io/temporary_folder.h"

using namespace roundoff;
using namespace roundoff::testing;

namespace {

// Runs f in a process of its own that then ends at once, without cleaning up; its exit status.
template <class F>
int in_a_process_that_dies(F&& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 99;
    try {
      status = f();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("reading: whole files, a limit, and what is not a file") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "hello");
  CHECK(read_file(folder / "a") == bytes_of("hello"));
  CHECK(read_file(folder / "a", 5).size() == 5);
  CHECK_THROWS_WITH_AS(read_file(folder / "a", 4), doctest::Contains("5 bytes, at most 4"),
                       FileError);
  CHECK_THROWS_WITH_AS(read_file(folder / "b"), doctest::Contains("No such file"), FileError);
  CHECK_THROWS_WITH_AS(read_file(folder.path()), doctest::Contains("not a regular file"),
                       FileError);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_AS(read_file(folder / "pipe"), FileError);  // at once, not when a writer comes
  write_file_atomically(folder / "empty", "");
  CHECK(read_file(folder / "empty").empty());

  const InputFile file(folder / "a");
  Bytes two(2);
  file.read(3, two);
  CHECK(two == bytes_of("lo"));
  CHECK_THROWS_AS(file.read(4, two), FileError);
  CHECK_THROWS_AS(file.read(~std::uint64_t{0}, two), FileError);
}

TEST_CASE("an atomic write replaces the old file whole and leaves nothing else") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.write(bytes_of("new, and "));
    CHECK(read_file(folder / "f") == bytes_of("old"));
    file.write(bytes_of("longer"));
    file.commit();
    CHECK_THROWS_AS(file.write(bytes_of("more")), FileError);
    CHECK_THROWS_AS(file.commit(), FileError);
  }
  CHECK(read_file(folder / "f") == bytes_of("new, and longer"));
  {
    AtomicFile abandoned(folder / "f");
    abandoned.write(bytes_of("half"));
    CHECK(folder.entries() == 2);
  }
  CHECK(read_file(folder / "f") == bytes_of("new, and longer"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("an atomic write that fails keeps the old file and removes its temporary") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(write_file_atomically(folder / "absent/f", "x"), FileError);
  CHECK_THROWS_AS(write_file_atomically(folder.path() / "", "x"), FileError);
  // A folder of that name: only the rename fails.
  std::filesystem::create_directory(folder / "d");
  CHECK_THROWS_AS(write_file_atomically(folder / "d", "x"), FileError);
  CHECK(folder.entries() == 1);
  // No room: a limit on the size of a file stands for a full disk.
  write_file_atomically(folder / "f", "old");
  const int status = in_a_process_that_dies([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    try {
      write_file_atomically(folder / "f", Bytes(8192));
    } catch (const FileError&) {
      return 0;
    }
    return 1;
  });
  CHECK(status == 0);
  CHECK(read_file(folder / "f") == bytes_of("old"));
  CHECK(folder.entries() == 2);
}

TEST_CASE("case 127 [CKPT] a process killed between write and rename") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "f", "old");
  const int status = in_a_process_that_dies([&] {
    auto* file = new AtomicFile(folder / "f");  // never destroyed: the process is killed
    file->write(bytes_of("half of the new"));
    return 0;
  });
  REQUIRE(status == 0);
  CHECK(folder.entries() == 2);
  CHECK(read_file(folder / "f") == bytes_of("old"));
  // The next write removes what the dead one left, but not what a living one holds.
  AtomicFile living(folder / "f");
  CHECK(folder.entries() == 2);
  write_file_atomically(folder / "f", "newer");
  CHECK(folder.entries() == 2);
  living.write(bytes_of("newest"));
  living.commit();
  CHECK(folder.entries() == 1);
  CHECK(read_file(folder / "f") == bytes_of("newest"));
  // Names that only resemble a temporary's are left alone.
  write_file_atomically(folder / ".f.notes.tmp", "mine");
  write_file_atomically(folder / ".g.abcdefgh.tmp", "mine");
  write_file_atomically(folder / "f", "again");
  CHECK(folder.entries() == 3);
}

TEST_CASE("SHA-256 against the values of FIPS 180-4's examples") {
  CHECK(sha256_of(bytes_of("")) ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_of(bytes_of("abc")) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.update("abcdbcdecdefdefgefghfghi");
  pieces.update("ghijhijkijkljklmklmnlmnomnopnopq");
  CHECK(pieces.hex() == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const TemporaryFolder folder;
  const std::string million(1000000, 'a');
  write_file_atomically(folder / "a", million + million);
  CHECK(sha256_of_file(folder / "a") == sha256_of(bytes_of(million + million)));
  CHECK(sha256_of(bytes_of(million)) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("gunzip gives exactly the size that the contents say") {
  const Bytes plain = bytes_of(std::string(5000, 'x') + "end");
  const Bytes packed = gzip_of(plain);
  const auto says = [](std::uint64_t n) { return [n](std::span<const std::byte>) { return n; }; };
  CHECK(is_gzip(packed));
  CHECK_FALSE(is_gzip(plain));
  CHECK(gunzip(packed, 4, says(plain.size()), "f") == plain);
  CHECK(gunzip(packed, 0, says(plain.size()), "f") == plain);
  CHECK(gunzip(packed, 100000, says(plain.size()), "f") == plain);
  CHECK(gunzip(gzip_of({}), 4, says(0), "f").empty());
  SUBCASE("a bomb: more than it says, or than its bytes can give") {
    for (const std::uint64_t n :
         {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{5002}, std::uint64_t{5004},
          std::uint64_t{1} << 40, std::uint64_t{1} << 63})
      CHECK_THROWS_AS(gunzip(packed, 4, says(n), "f"), FileError);
    // The trailer's length is forged to match, so that only the stream itself can tell.
    for (const std::uint32_t n : {4000U, 5002U, 5004U, 6000U}) {
      Bytes forged = packed;
      for (std::size_t i = 0; i < 4; ++i)
        forged[forged.size() - 4 + i] = static_cast<std::byte>(n >> (8 * i) & 0xFF);
      CHECK_THROWS_AS(gunzip(forged, 4, says(n), "f"), FileError);
    }
  }
  SUBCASE("truncated anywhere, damaged anywhere, or with something behind it") {
    for (std::size_t n = 0; n < packed.size(); ++n)
      CHECK_THROWS_AS(gunzip(std::span(packed).first(n), 4, says(plain.size()), "f"), FileError);
    Bytes longer = packed;
    append(longer, packed);  // two members
    CHECK_THROWS_AS(gunzip(longer, 4, says(2 * plain.size()), "f"), FileError);
    // A damaged stream is refused, unless it still means the same (a copy from two x's back).
    int refused = 0;
    for (std::size_t i = 10; i < packed.size(); ++i) {
      Bytes damaged = packed;
      damaged[i] ^= std::byte{0x10};
      try {
        const Bytes result = gunzip(damaged, 4, says(plain.size()), "f");
        CHECK(result == plain);
      } catch (const FileError&) {
        ++refused;
      }
    }
    CHECK(refused >= 8);  // the checksum and the length, at least
  }
}
