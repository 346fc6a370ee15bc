/* profile_svg.c: a profile as a picture: a bar a role, as long as its time, with its floor drawn into it. Nothing is
 * loaded from elsewhere: shapes and the viewer's own sans-serif font. */
#include "img_print.h"
#include "profile.h"

#include <math.h>

enum {
  SVG_WIDTH = 1080,
  SVG_LEFT = 180,  /* where bars begin */
  SVG_BAR = 560,   /* length of the longest */
  SVG_TOP = 170,   /* first bar */
  SVG_ROW = 34,    /* from bar to bar */
  SVG_HEIGHT = 20, /* of a bar */
};

/* Text that XML takes: markup escaped; what is no printable ASCII or UTF-8 left out. */
static void svg_escape(const char *text, FILE *out) {
  for (const char *at = text; *at; at++) {
    unsigned char c = (unsigned char)*at;
    if (c == '<')
      fputs("&lt;", out);
    else if (c == '>')
      fputs("&gt;", out);
    else if (c == '&')
      fputs("&amp;", out);
    else if (c == '"')
      fputs("&quot;", out);
    else if (c >= 0x20 && c != 0x7f)
      fputc(c, out);
  }
}

/* The step of a scale of at most 6 marks up to `most`: 1, 2 or 5 times a power of ten. */
static double svg_mark(double most) {
  double power = pow(10, floor(log10(most / 6)));
  for (int i = 0; i < 3; i++) {
    static const double factor[] = {1, 2, 5};
    if (most / (factor[i] * power) <= 6) return factor[i] * power;
  }
  return 10 * power;
}

#define SVG_TIME "#7aa6d8"
#define SVG_FLOOR "#d9822b"
#define SVG_EMPTY "#a9a9a9"

static void svg_box(double x, double y, double width, double height, const char *color, FILE *out) {
  fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>", x, y, width, height, color);
}

static void svg_title(const struct profile *p, FILE *out) {
  char what[128];
  profile_describe(p, what);
  fputs("<text x=\"24\" y=\"36\" font-size=\"20\" font-weight=\"bold\">", out);
  svg_escape(p->model, out);
  fputc(' ', out);
  svg_escape(p->quantization, out);
  fprintf(out, ", %u layers: where the time of a step goes</text>\n<text x=\"24\" y=\"60\">", p->n_layer);
  svg_escape(what, out);
  fprintf(out, ", tier %s</text>\n<text x=\"24\" y=\"80\">", p->tier);
  svg_escape(p->device, out);
  fprintf(out, "</text>\n<text x=\"24\" y=\"100\">Its memory gives %.0f GB/s: ", p->ceiling.gb_s.median);
  profile_describe_ceiling(p, out);
  fputs("</text>\n", out);
  static const struct {
    int x;
    const char *color, *text;
  } legend[] = {{24, SVG_TIME, "time of the role's dispatches, each run alone (line: its spread)"},
                {462, SVG_FLOOR, "floor: the bytes it reads at that speed"},
                {744, SVG_EMPTY, "launching: the same dispatches without rows"}};
  for (size_t i = 0; i < sizeof legend / sizeof *legend; i++) {
    svg_box(legend[i].x, 114, 14, 14, legend[i].color, out);
    fprintf(out, "<text x=\"%d\" y=\"126\">%s</text>\n", legend[i].x + 20, legend[i].text);
  }
}

static void svg_scale(double most_us, uint32_t n, FILE *out) {
  double mark = svg_mark(most_us), bottom = SVG_TOP + (double)SVG_ROW * n;
  for (int i = 0; i * mark <= most_us; i++) {
    double x = SVG_LEFT + SVG_BAR * i * mark / most_us;
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>"
            "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#666666\">%g us</text>\n",
            x, SVG_TOP - 10, x, bottom, x, SVG_TOP - 16, i * mark);
  }
}

/* The length of a time on the scale, which ends with the longest median; never beyond it. */
static double svg_length(double us, double most_us) {
  return SVG_BAR * fmin(us / most_us, 1);
}

static void svg_bar(const struct profile *p, uint32_t i, double most_us, FILE *out) {
  const struct profile_role *r = &p->role[i];
  uint64_t bytes = profile_sum(&r->bytes);
  double y = SVG_TOP + (double)SVG_ROW * i, middle = y + SVG_HEIGHT / 2.0;
  double floor_us = profile_floor_us(p, bytes), times = profile_ratio(r->us.median, floor_us);
  fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", SVG_LEFT - 10, middle + 5);
  svg_escape(img_role_name(r->role), out);
  fprintf(out, " <tspan fill=\"#888888\">x%u</tspan></text>\n", r->n_dispatch);
  svg_box(SVG_LEFT, y, svg_length(r->us.median, most_us), SVG_HEIGHT, SVG_TIME, out);
  svg_box(SVG_LEFT, y, svg_length(floor_us, most_us), 6, SVG_FLOOR, out);
  svg_box(SVG_LEFT, y + SVG_HEIGHT - 6, svg_length(r->empty_us.median, most_us), 6, SVG_EMPTY, out);
  fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#1f3f66\" stroke-width=\"2\"/>\n",
          SVG_LEFT + svg_length(r->us.low, most_us), middle, SVG_LEFT + svg_length(r->us.high, most_us), middle);
  fprintf(out, "<text x=\"%d\" y=\"%.1f\">%.1f us, %.1f%%; %.0f GB/s; %.*f x floor</text>\n", SVG_LEFT + SVG_BAR + 30,
          middle + 5, r->us.median, 100 * profile_ratio(r->us.median, p->each_us.median),
          profile_gb_s(bytes, r->us.median), times < 100 ? 1 : 0, times);
}

void profile_svg(const struct profile *p, FILE *out) {
  double most_us = 1e-3, floor_us = profile_floor_us(p, profile_sum(&p->bytes));
  for (uint32_t i = 0; i < p->n_role; i++) most_us = fmax(most_us, p->role[i].us.median);
  int bottom = SVG_TOP + SVG_ROW * (int)p->n_role, height = bottom + 76;
  fprintf(out,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
          "font-family=\"sans-serif\" font-size=\"13\">\n<title>",
          SVG_WIDTH, height, SVG_WIDTH, height);
  svg_escape(p->model, out);
  fprintf(out, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", SVG_WIDTH, height);
  svg_title(p, out);
  svg_scale(most_us, p->n_role, out);
  for (uint32_t i = 0; i < p->n_role; i++) svg_bar(p, i, most_us, out);
  fprintf(
      out,
      "<text x=\"24\" y=\"%d\" font-weight=\"bold\">The step as it runs: %.1f us (%.1f..%.1f), %.1f times its floor "
      "of %.1f us.</text>\n"
      "<text x=\"24\" y=\"%d\">All dispatches, each alone: %.1f us. The step without rows (launches and barriers): "
      "%.1f us. %u dispatches, %u barriers. Medians of %u.</text>\n</svg>\n",
      bottom + 24, p->whole_us.median, p->whole_us.low, p->whole_us.high, profile_ratio(p->whole_us.median, floor_us),
      floor_us, bottom + 46, p->each_us.median, p->empty_us.median, p->n_dispatch, p->n_barrier, p->repeat);
}
