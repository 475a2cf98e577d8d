/* Translates standard input with an exported SavedModel, without Python.
 *
 * TensorFlow's C API loads the version as TensorFlow Serving does; everything from string
 * to string is in it. Build against the library of any TensorFlow wheel:
 *
 *   TF=$(python -c "import tensorflow as tf; print(tf.sysconfig.get_lib())")
 *   gcc -O2 -pthread translate.c -I$TF/include -L$TF -l:libtensorflow_cc.so.2 \
 *       -l:libtensorflow_framework.so.2 -Wl,-rpath,$TF -o translate
 *   ./translate models/mine/1 TEXT_OPS INPUT OUTPUT [--truncated TENSOR] [--threads N]
 *       [--framed] < in > out
 *
 * TEXT_OPS is tensorflow_text's _sentencepiece_tokenizer.so, or - if the tokenizers are
 * of words. INPUT and OUTPUT are the tensors of the signature's `text` and `translation`
 * as saved_model_cli shows them, such as serving_default_text:0 and
 * StatefulPartitionedCall:2. With that of `truncated` it counts the texts that are longer
 * than the model reads.
 *
 * A line is a request, without a byte order mark at the start, and an answer is a line;
 * N threads share one session, and answers keep the order of the requests. Gzip, UTF-16,
 * UTF-32 and lines that end with carriage returns alone are refused; c_client.py unpacks gzip.
 * With --framed, texts and answers are of any bytes, each behind its length (4 bytes,
 * little-endian). At the end it says on standard error how long requests took.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

typedef struct {
  char *bytes;
  size_t size;
} Text;

static bool framed;
static TF_Session *session;
static TF_Output input, outputs[2]; /* the translation; whether the text was truncated */
static int output_count = 1;

/* What the threads share. */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t written_one = PTHREAD_COND_INITIALIZER;
static size_t requests_read, answers_written, failures, truncated;
static const char *wrong; /* with the input, of which no more is read */
static double *milliseconds;
static size_t capacity;
static double early_megabytes;

static void die(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(2);
}

static void *must(void *memory) {
  if (!memory) die("memory", "there is no more");
  return memory;
}

static void check(const char *what, TF_Status *status) {
  if (TF_GetCode(status) != TF_OK) die(what, TF_Message(status));
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static double megabytes(void) {
  long all = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return 0;
  if (fscanf(file, "%ld %ld", &all, &resident) != 2) resident = 0;
  fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1e6);
}

/* "name:0" -> the graph's operation and which of its outputs. */
static TF_Output tensor(TF_Graph *graph, const char *name) {
  char *copy = must(strdup(name)), *colon = strrchr(copy, ':');
  int index = 0;
  if (colon) {
    *colon = 0;
    index = atoi(colon + 1);
  }
  TF_Output found = {TF_GraphOperationByName(graph, copy), index};
  if (!found.oper) die(name, "the graph has no such tensor");
  if (index < 0 || index >= TF_OperationNumOutputs(found.oper)) die(name, "no such output");
  free(copy);
  return found;
}

static bool read_framed(Text *text) {
  unsigned char head[4];
  size_t size = fread(head, 1, 4, stdin);
  if (size > 0 && size < 4) wrong = "ends early";
  if (size < 4) return false;
  text->size = head[0] | head[1] << 8 | head[2] << 16 | (size_t)head[3] << 24;
  text->bytes = must(malloc(text->size + 1));
  if (fread(text->bytes, 1, text->size, stdin) == text->size) return true;
  wrong = "ends early";
  free(text->bytes);
  return false;
}

/* Whether a line that is the only one would be several if carriage returns ended lines:
 * one is within, and it has several, or no line feed. */
static bool seems_lines(const char *bytes, size_t size) {
  size_t within = size, returns = 0;
  while (within && (bytes[within - 1] == '\r' || bytes[within - 1] == '\n')) within--;
  for (size_t i = 0; i < size; i++) returns += bytes[i] == '\r';
  if (!memchr(bytes, '\r', within) || (returns == 1 && bytes[size - 1] == '\n')) return false;
  int next = getc(stdin);
  return next == EOF || ungetc(next, stdin) == EOF;
}

/* The encoding of input that begins with this line, if its letters are wider than those
 * of UTF-8; NULL if not. Without a mark it is told by NULs, which are in half of the bytes
 * of UTF-32; in UTF-16, of Latin letters and spaces, they are at every other place. */
static const char *wide_encoding(const char *bytes, size_t size) {
  size_t nuls[2] = {0, 0}, others = 0;
  if (size >= 4 && (!memcmp(bytes, "\xff\xfe\0\0", 4) || !memcmp(bytes, "\0\0\xfe\xff", 4)))
    return "UTF-32";
  if (size >= 2 && (!memcmp(bytes, "\xff\xfe", 2) || !memcmp(bytes, "\xfe\xff", 2)))
    return "UTF-16";
  if (size >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3)) return NULL;
  for (size_t i = 0; i < size; i++) {
    nuls[i % 2] += !bytes[i];
    others += bytes[i] && bytes[i] != '\r' && bytes[i] != '\n';
  }
  bool big = nuls[0] > nuls[1];
  size_t few = nuls[big], many = nuls[!big];
  if (!others || many < 2 || 16 * many < size) return NULL;
  if (8 * few <= many) return big ? "UTF-16BE" : "UTF-16LE";
  if (2 * (few + many) < size - 1) return NULL;
  return big ? "UTF-32BE" : "UTF-32LE";
}

/* What is wrong with input that begins with this line, or NULL. */
static const char *wrong_begin(const char *bytes, size_t size) {
  static char message[80];
  const char *encoding = wide_encoding(bytes, size);
  if (size >= 2 && !memcmp(bytes, "\x1f\x8b", 2)) return "is gzip: unpack it first, by gzip -dc";
  if (encoding) {
    snprintf(message, sizeof message, "is %s: convert it first, by iconv -f %s -t UTF-8",
             encoding, encoding);
    return message;
  }
  if (seems_lines(bytes, size))
    return "is one line with carriage returns within, and its lines seem to end with them "
           "alone: convert it first, by tr '\\r' '\\n'";
  return NULL;
}

static bool is_line_end(char byte) { return byte == '\n' || byte == '\r'; }

/* What has no line feed and nothing before it, such as a mark alone, is no line. */
static bool read_line(Text *text) {
  size_t room = 0;
  text->bytes = NULL;
  ssize_t size = getline(&text->bytes, &room, stdin);
  bool more = size > 0, ended = more && text->bytes[size - 1] == '\n';
  text->size = more ? size : 0;
  while (text->size && is_line_end(text->bytes[text->size - 1])) text->size--;
  if (more && requests_read == 0) {
    wrong = wrong_begin(text->bytes, size);
    if (text->size >= 3 && !memcmp(text->bytes, "\xef\xbb\xbf", 3)) {
      text->size -= 3;
      memmove(text->bytes, text->bytes + 3, text->size);
    }
  }
  more = !wrong && (text->size || ended);
  if (!more) free(text->bytes);
  return more;
}

/* How many bytes of UTF-8 end a line, for any program that may read it; 0 for none. */
static size_t line_end(const char *bytes, size_t size) {
  static const char *const ends[] = {"\r\n", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d",
                                     "\x1e", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    size_t length = strlen(ends[i]);
    if (length <= size && !memcmp(bytes, ends[i], length)) return length;
  }
  return 0;
}

static void write_text(const char *bytes, size_t size) {
  if (framed) {
    unsigned char head[4] = {size, size >> 8, size >> 16, size >> 24};
    fwrite(head, 1, 4, stdout);
    fwrite(bytes, 1, size, stdout);
  } else {
    for (size_t at = 0; at < size;) {
      size_t end = line_end(bytes + at, size - at);
      if (!end) putchar(bytes[at]);
      else if (at + end < size) putchar(' ');
      at += end ? end : 1;
    }
    putchar('\n');
  }
}

/* One request: a batch of one text. Returns NULL where it failed. */
static TF_Tensor *translate(const Text *text, bool *cut, TF_Status *status) {
  const int64_t dims[1] = {1};
  TF_Tensor *question = TF_AllocateTensor(TF_STRING, dims, 1, sizeof(TF_TString));
  TF_TString *string = TF_TensorData(question);
  TF_StringInit(string);
  TF_StringCopy(string, text->bytes, text->size);
  TF_Tensor *answers[2] = {NULL, NULL};
  TF_SessionRun(session, NULL, &input, &question, 1, outputs, answers, output_count, NULL, 0,
                NULL, status);
  TF_StringDealloc(string);
  TF_DeleteTensor(question);
  *cut = answers[1] && *(const unsigned char *)TF_TensorData(answers[1]);
  if (answers[1]) TF_DeleteTensor(answers[1]);
  return TF_GetCode(status) == TF_OK ? answers[0] : NULL;
}

static void record(size_t request, double took) {
  if (request >= capacity) {
    capacity = capacity ? 2 * capacity : 1024;
    milliseconds = must(realloc(milliseconds, capacity * sizeof *milliseconds));
  }
  milliseconds[request] = took;
}

static void *work(void *unused) {
  TF_Status *status = TF_NewStatus();
  for (;;) {
    Text text;
    pthread_mutex_lock(&reading);
    bool more = !wrong && (framed ? read_framed(&text) : read_line(&text));
    size_t request = requests_read;
    requests_read += more;
    pthread_mutex_unlock(&reading);
    if (!more) break;

    bool cut;
    double start = now();
    TF_Tensor *answer = translate(&text, &cut, status);
    double took = now() - start;
    free(text.bytes);

    pthread_mutex_lock(&writing);
    while (answers_written != request) pthread_cond_wait(&written_one, &writing);
    record(request, took);
    if (answer) {
      TF_TString *string = TF_TensorData(answer);
      write_text(TF_StringGetDataPointer(string), TF_StringGetSize(string));
      TF_DeleteTensor(answer);
    } else {
      fprintf(stderr, "request %zu: %s\n", request + 1, TF_Message(status));
      write_text("", 0);
      failures++;
    }
    truncated += cut;
    answers_written++;
    if (answers_written == 1000) early_megabytes = megabytes();
    pthread_cond_broadcast(&written_one);
    pthread_mutex_unlock(&writing);
  }
  TF_DeleteStatus(status);
  return unused;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The first request of each thread waits until the graph is optimised. */
static void report(double seconds, size_t threads) {
  fprintf(stderr, "%zu requests, %zu failed, ", answers_written, failures);
  if (output_count == 2) fprintf(stderr, "%zu longer than the model reads, ", truncated);
  fprintf(stderr, "%.1f s", seconds);
  if (answers_written > threads) {
    double *times = milliseconds + threads;
    size_t n = answers_written - threads;
    qsort(times, n, sizeof *times, ascending);
    fprintf(stderr, "; after the first ones, milliseconds: p50 %.1f, p99 %.1f, slowest %.1f",
            times[n / 2], times[n * 99 / 100], times[n - 1]);
  }
  if (early_megabytes > 0)
    fprintf(stderr, "; megabytes: %.0f after 1000 requests, %.0f now", early_megabytes,
            megabytes());
  fprintf(stderr, "\n");
}

int main(int argc, char **argv) {
  int threads = 1;
  const char *cut = NULL;
  for (int i = 5; i < argc; i++) {
    if (!strcmp(argv[i], "--framed")) framed = true;
    else if (!strcmp(argv[i], "--threads") && i + 1 < argc) threads = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--truncated") && i + 1 < argc) cut = argv[++i];
    else die(argv[i], "no such option");
  }
  if (argc < 5 || threads < 1)
    die("usage", "translate VERSION_DIR TEXT_OPS|- INPUT OUTPUT [--truncated TENSOR] "
                 "[--threads N] [--framed]");

  TF_Status *status = TF_NewStatus();
  if (strcmp(argv[2], "-")) {
    TF_LoadLibrary(argv[2], status);
    check(argv[2], status);
  }
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  const char *tags[] = {"serve"};
  session = TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  check(argv[1], status);
  input = tensor(graph, argv[3]);
  outputs[0] = tensor(graph, argv[4]);
  if (cut) outputs[1] = tensor(graph, cut), output_count = 2;

  double start = now();
  pthread_t *workers = must(calloc(threads, sizeof *workers));
  for (int i = 0; i < threads; i++)
    if (pthread_create(&workers[i], NULL, work, NULL)) die("threads", "cannot be started");
  for (int i = 0; i < threads; i++) pthread_join(workers[i], NULL);
  report((now() - start) / 1e3, threads);
  bool unwritten = fflush(stdout) || ferror(stdout);
  if (unwritten) fprintf(stderr, "standard output: cannot be written\n");
  if (wrong) fprintf(stderr, "the input %s\n", wrong);

  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteGraph(graph);
  TF_DeleteSessionOptions(options);
  TF_DeleteStatus(status);
  free(workers);
  free(milliseconds);
  return failures > 0 || unwritten || wrong;
}
