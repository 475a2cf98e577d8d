/** What the build writes in the place of these names. */
declare const LITERT_VERSION: string;
declare const PAGE_SUMS: Record<string, number>;
declare const PAGE_HEADERS: Record<string, string>;
