/** What the build writes in the place of these names. */
declare const LITERT_VERSION: string;
declare const PAGE_FILES: string[];
declare const PAGE_HEADERS: Record<string, string>;
